"""The question home."""

__all__ = ["page"]
