"""The question loader."""

__all__ = ["charts.phases", "page"]
