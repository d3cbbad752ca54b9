"""How many cores a GPU needs: what a core loads, against what a GPU trains."""

__all__ = ["page"]
