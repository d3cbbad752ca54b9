"""The question accuracy."""

__all__ = ["page"]
