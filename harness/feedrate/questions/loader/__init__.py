"""The question loader."""

__all__ = ["page", "phase_charts"]
