"""The question hardware."""

__all__ = ["page"]
