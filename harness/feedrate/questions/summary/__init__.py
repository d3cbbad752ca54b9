"""The question summary."""

__all__ = ["terminal"]
