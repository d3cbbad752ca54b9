"""The question claims."""

__all__ = ["charts", "page", "terminal"]
