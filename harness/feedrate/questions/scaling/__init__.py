"""What becomes of each node's pace when many load at once, and what training on several brings."""

__all__ = ["page"]
