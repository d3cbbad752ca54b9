"""The question explore."""

__all__ = ["page"]
