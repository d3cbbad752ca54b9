"""The time of a run as an axis: the unit that suits its length."""

from __future__ import annotations


def unit_of(seconds: float) -> tuple[float, str]:
    """Pick the unit in which a run's time is told.

    Args:
        seconds: how long the run took.

    Returns:
        Seconds in the unit, and its name: seconds, minutes or hours.
    """
    if seconds < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")
