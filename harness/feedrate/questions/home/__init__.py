"""The question home."""

__all__ = ["charts", "page"]
