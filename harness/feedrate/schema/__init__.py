"""The tables of truth: axes, columns, metrics, margins, words, errors, and how plug-ins are found."""

__all__ = ["axes", "columns", "errors", "metrics", "plugins", "redaction", "window", "words"]
