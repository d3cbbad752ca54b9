"""All runs, how to cite them, and what changed."""

__all__ = ["page"]
