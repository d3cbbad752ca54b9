"""The question machines."""

__all__ = ["page"]
