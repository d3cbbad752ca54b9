"""The question claims."""

__all__ = ["charts.claims", "page", "terminal"]
