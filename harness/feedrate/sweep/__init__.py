"""The parent of a sweep: template process, launcher, observer, journal, progress."""

__all__ = ["launcher", "run", "screen", "sweep"]
