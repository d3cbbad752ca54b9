"""The question suites."""

__all__ = ["page"]
