"""Data sets of other people, fetched from where they are published; they are never shipped with feedrate or results."""

__all__ = ["crops", "div2k", "pets"]
