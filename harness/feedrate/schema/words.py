"""Numbers, intervals and durations in words, the same in charts, tables and pages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from feedrate.schema.errors import InputError


def is_number(value: object) -> bool:
    """Say whether a value is a number (not None, not NaN, not ``pd.NA``)."""
    return isinstance(value, int | float) and math.isfinite(value)


def number(value: float, digits: int = 3) -> str:
    """Write a number with three significant digits and thousands separators: ``5,210``, ``0.413``."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")  # before its places are counted: 9.98 is 10, of two digits
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, places)}f}"


def percent(share: float) -> str:
    """Write a share of one as per cent: ``62 %``; below 1 % with a digit more. The space does not break."""
    if 0 < share < 0.0005:
        return "under 0.1\u00a0%"
    digits = 0 if share >= 0.0095 or share <= 0 else 1
    return per_cent(100 * share, digits)


def per_cent(pct: float, places: int | None = None) -> str:
    """Write a number that is in per cent already: with so many decimals, or with two significant digits: ``5.1 %``."""
    return f"{number(pct, 2) if places is None else f'{pct:z.{places}f}'}\u00a0%".replace("-", "−")


def signed(pct: float, places: int | None = None) -> str:
    """Write a deviation in per cent with its sign: ``+0.023 %``, ``−39.9 %``; ``places`` are its decimals, if fixed."""
    if not is_number(pct):
        return "–"
    size = number(abs(pct), 3 if abs(pct) >= 1 else 2) if places is None else f"{abs(pct):.{places}f}"
    return f"{'−' if pct < 0 and size.strip('0.') else '+'}{size}\u00a0%"


def times(ratio: float) -> str:
    """Write a ratio: ``1.8×``."""
    return f"{ratio:.2f}×" if ratio < 1.095 else f"{number(ratio, 2)}×"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: ``1 worker``, ``2 workers``, ``0 workers``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


INTERVALS = "In brackets: 95\u00a0% intervals; n counts repetitions."
"""What every page and report says once."""
NO_INTERVAL = "no interval"
Write = Callable[[float], str]


_KINDS: Mapping[str, tuple[Write, str]] = {
    "number": (number, ""),
    "ratio": (number, "×"),
    "share": (percent, ""),
    "change": (lambda pct: signed(pct, 1), ""),
}
"""Kind of estimate to what writes its numbers, and the sign behind the value."""


def interval(low: Any, high: Any, n: int | str | None = None, write: Write = number) -> str:
    """Write the ends of a 95 % interval, and what it rests on: ``2.15–2.7, n = 5``, ``58–62 %``, ``no interval``."""
    ends = NO_INTERVAL
    if is_number(low) and is_number(high):
        first, last = write(low), write(high)
        bare, space, unit = first.rpartition("\u00a0")
        first = bare if bare and last.endswith(space + unit) else first
        apart = "\u00a0–\u00a0" if first[0] in "+−-" or last[0] in "+−-" else "–"
        ends = f"{first}{apart}{last}"
    return ends if n is None else f"{ends}, n\u00a0=\u00a0{n}"


def margin(low: Any, high: Any, write: Write, of: float = 1.0) -> str:
    """Write half of an interval, or its share ``of`` a value, where there is no room for its ends: ``± 3.1 %``."""
    return f"± {write((high - low) / 2 / of)}" if is_number(low) and is_number(high) else "± ?"


def estimate(
    ends: tuple[Any, Any, Any],
    kind: str = "number",
    unit: str = "",
    n: int | str | None = None,
    write: Write | None = None,
) -> str:
    """Write a value with its unit and, in brackets, its interval: ``2.41× (2.15–2.70, n = 5)``.

    Args:
        ends: the value, and the low and high end of the interval.
        kind: what it is: ``number``, ``ratio``, ``share`` of one or ``change`` in per cent.
        unit: stands behind the value.
        n: what the interval rests on, where that is said.
        write: writes numbers, if not as their kind is usually written.
    """
    usual, sign = _KINDS[kind]
    value, low, high = ends
    write = write or usual
    return f"{write(value)}{sign}{unit} ({interval(low, high, n, write)})"


def sized(what: object, pixels: object, between: str = ", ") -> str:
    """Name images with their height and width, ``div2k, 64 px``; what has none stands alone."""
    return f"{what}{between}{pixels} px" if is_number(pixels) else str(what)


def listed(words: Iterable[str]) -> str:
    """Join words as a sentence does: ``a, b and c``."""
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def capital(text: str) -> str:
    """Start with a capital letter; the rest stays as it is."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Start with a capital letter and end with a full stop."""
    text = capital(text)
    return text if text.endswith((".", "?", "!")) else f"{text}."


_PATTERN = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse(value: object, where: str) -> float:
    """Read a duration above zero, in seconds, from a number or a text such as ``90s``; ``where`` names its place.

    Raises:
        InputError: it is no duration above zero; ``where`` names the place.
    """
    text = str(value).strip().lower()
    match = _PATTERN.fullmatch(text) if text and not isinstance(value, bool) else None
    if not match:
        raise InputError(f"{where}: got {value!r}; expected a duration such as 90s, 4m or 1h30m")
    hours, minutes, seconds = (float(digits or 0) for digits in match.groups())
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
