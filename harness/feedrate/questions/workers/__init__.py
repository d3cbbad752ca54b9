"""The question workers."""

__all__ = ["page"]
