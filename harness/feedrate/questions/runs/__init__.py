"""The question runs."""

__all__ = ["analysis", "facts", "page", "trust", "withdrawn"]
