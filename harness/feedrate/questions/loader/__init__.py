"""The question loader."""

__all__ = ["charts", "page"]
