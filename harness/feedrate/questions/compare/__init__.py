"""The question compare."""

__all__ = ["comparison", "page", "terminal"]
