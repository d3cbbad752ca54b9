"""The question calibration."""

__all__ = ["analysis", "page", "terminal"]
