"""The question methodology."""

__all__ = ["page"]
