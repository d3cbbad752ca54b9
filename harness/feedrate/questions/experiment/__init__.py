"""The question experiment."""

__all__ = ["page"]
