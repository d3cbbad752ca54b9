"""The question explore."""

__all__ = ["page", "run_files"]
