"""The parent of a sweep: template process, launcher, observer, journal, progress."""

__all__ = ["blocks", "launcher", "screen", "sweep"]
