"""The question accuracy."""

__all__ = ["chart", "page"]
