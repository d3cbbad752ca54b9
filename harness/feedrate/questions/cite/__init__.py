"""The question cite."""

__all__ = ["page"]
