"""Durations as people write them: ``90``, ``90s``, ``4m``, ``1h30m``."""

from __future__ import annotations

import re

from harness.errors import InputError

_PATTERN = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse(value: object, where: str) -> float:
    """Read a duration.

    Args:
        value: seconds as a number, or text such as ``4m``.
        where: names the place in messages.

    Returns:
        Seconds, more than 0.

    Raises:
        InputError: it is no duration.
    """
    text = str(value).strip().lower()
    match = _PATTERN.fullmatch(text) if text and not isinstance(value, bool) else None
    if not match:
        raise InputError(f"{where}: got {value!r}; expected a duration such as 90s, 4m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise InputError(f"{where}: got {value!r}; expected a duration above zero, such as 4m")
    return total


def show(seconds: float) -> str:
    """Write a duration for people: ``48 s``, ``4 min``, ``1 h 05 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def typed(seconds: float) -> str:
    """Write whole seconds, one at least, as ``parse`` reads them: ``90s``, ``16m``, ``1h36m``."""
    whole = round(seconds)
    if whole % 60:
        return f"{whole}s"
    hours, minutes = divmod(whole // 60, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")
