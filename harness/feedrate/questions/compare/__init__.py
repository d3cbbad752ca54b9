"""The question compare."""

__all__ = ["analysis", "comparison", "page", "terminal"]
