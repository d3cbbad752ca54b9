"""The question storage."""

__all__ = ["page"]
