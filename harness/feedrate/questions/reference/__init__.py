"""The question reference."""

__all__ = ["page"]
