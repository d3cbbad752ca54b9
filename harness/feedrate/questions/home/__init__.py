"""The question home."""

__all__ = ["findings", "page"]
