"""The question workers."""

__all__ = ["charts", "page"]
