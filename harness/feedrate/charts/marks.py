"""Lines of an ordered series (worker counts) over batch size: colour, shape and sideways shift tell them apart.

Marks around their mean: single trials or blocks, the mean as a line, its 95 % interval as a band.

What holds a cell back, as colours, shapes and words: the same on every mark that is about it.

The frame that charts draw: estimates a cell, and beside throughput an interval for utilization as well.

The time of a run as an axis: the unit that suits its length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis import estimates
from feedrate.analysis.blocks import KEYS, half_width, memoized, successful
from feedrate.analysis.ceilings import BALANCED_WITHIN
from feedrate.analysis.noise import Estimate
from feedrate.charts.figure import Key, Row, table
from feedrate.charts.theme import PHASE_COLOURS, SHAPES, colour, series
from feedrate.schema import words


class Series:
    """Worker counts with the same colour and shape in every panel of a figure."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.labels = [words.plural(count, "worker") for count in counts]
        steps = series(len(counts), bool(counts) and counts[0] == 0)
        self.colours = [colour(f"series-{min(step, 6)}") for step in steps]
        self.shapes = [SHAPES[place % len(SHAPES)] for place in range(len(counts))]

    def keys(self) -> list[Key]:
        """The legend of the series."""
        return [Key(*entry) for entry in zip(self.labels, self.colours, self.shapes, strict=True)]

    def layers(self, rows: Sequence[Row], title: str, axis_format: str, scale: alt.Scale) -> list[alt.Chart]:
        """Draw lines, intervals and points over batch size.

        Args:
            rows: with ``batch``, ``series``, ``value``, ``lo``, ``hi`` and ``n``.
            title: of the value axis, with its unit.
            axis_format: d3 format of the value axis.
            scale: of the value axis.
        """
        base = alt.Chart(table(rows))
        x = alt.X("batch:O", title="batch size", axis=alt.Axis(labelAngle=0), scale=alt.Scale(paddingInner=0.1))
        shift = alt.XOffset("series:N", sort=self.labels, scale=alt.Scale(domain=self.labels, paddingOuter=1))
        tone = alt.Color("series:N", title=None, scale=alt.Scale(domain=self.labels, range=self.colours))
        y_axis = alt.Axis(format=axis_format, tickCount=5)
        return [
            base.mark_line(strokeWidth=1.75, opacity=0.75).encode(
                x=x, xOffset=shift, y=alt.Y("value:Q", title=title, axis=y_axis, scale=scale), color=tone
            ),
            base.transform_filter("isValid(datum.lo) && isValid(datum.hi)")
            .mark_rule(strokeWidth=1.75)
            .encode(x=x, xOffset=shift, y=alt.Y("lo:Q", title=title), y2=alt.Y2("hi:Q"), color=tone),
            base.mark_point(filled=True, size=55, opacity=1).encode(
                x=x,
                xOffset=shift,
                y=alt.Y("value:Q", title=title),
                color=tone,
                shape=alt.Shape("series:N", title=None, scale=alt.Scale(domain=self.labels, range=self.shapes)),
                tooltip=[
                    alt.Tooltip("batch:O", title="batch size"),
                    alt.Tooltip("series:N", title="workers"),
                    alt.Tooltip("value:Q", title=title, format=",.4~g"),
                    alt.Tooltip("lo:Q", title="low", format=",.4~g"),
                    alt.Tooltip("hi:Q", title="high", format=",.4~g"),
                    alt.Tooltip("n:Q", title="blocks"),
                ],
            ),
        ]


HEIGHT = 250
KINDS = {"plain": (colour("name-0"), "circle"), "flagged": (colour("source"), "diamond")}
"""Colour and shape of marks; a flagged trial is one of which something is to be said."""


def percent_off(ratio: float) -> float:
    """How far a ratio is from 1, in per cent."""
    return 100 * (ratio - 1)


def around_mean(
    rows: Sequence[Row], x: alt.X, title: str, mean: Sequence[float], hover: Sequence[Any]
) -> list[alt.Chart]:
    """Draw band, line of the mean, marks.

    Args:
        rows: with ``at``, ``value`` and ``kind``.
        x: of ``at``.
        title: of the vertical axis.
        mean: the mean and the ends of its interval, in the axis' unit; NaN where an end is not known.
        hover: tooltips of a mark.
    """
    y = alt.Y("value:Q", title=title, axis=alt.Axis(format="+.3~g", tickCount=5), scale=alt.Scale(zero=False, nice=5))
    band = alt.Chart(table([dict(zip(("mean", "lo", "hi"), (plain(end) for end in mean), strict=True))]))
    known = [band.mark_rect(color=colour("accent"), opacity=0.18).encode(y=alt.Y("lo:Q"), y2=alt.Y2("hi:Q"))]
    tones, shapes = ([look[place] for look in KINDS.values()] for place in (0, 1))
    return [
        *(known if all(words.known(end) for end in mean) else []),
        band.mark_rule(color=colour("accent"), strokeWidth=1.75).encode(y=alt.Y("mean:Q")),
        alt.Chart(table(rows))
        .mark_point(filled=True, size=50, opacity=0.9)
        .encode(
            x=x,
            y=y,
            color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=list(KINDS), range=tones)),
            shape=alt.Shape("kind:N", title=None, scale=alt.Scale(domain=list(KINDS), range=shapes)),
            tooltip=list(hover),
        ),
    ]


def plain(value: float) -> float | None:
    """A number, or None where it is not known."""
    return value if words.known(value) else None


def ends(found: Estimate) -> dict[str, float | None]:
    """Ends of an interval as a figure's table has them."""
    return {"low": plain(found.lo), "high": plain(found.hi)}


ACHIEVED = "achieved"
TONES = {
    "loader-bound": PHASE_COLOURS["fetch"],
    "copy-bound": PHASE_COLOURS["h2d"],
    "compute-bound": PHASE_COLOURS["forward"],
    "emulated-step-bound": colour("emulated-edge"),
    "balanced": colour("accent"),
    ACHIEVED: colour("ink"),
}
"""Words of ``analysis.ceilings.bottleneck``, in the colour of the phase that each is about; and what was achieved."""
MARKS = {
    "loader-bound": "circle",
    "copy-bound": "triangle-up",
    "compute-bound": "square",
    "emulated-step-bound": "square",
    "balanced": "diamond",
    ACHIEVED: "cross",
}
_SAID = {
    "loader-bound": "loader-bound; line: the loader alone",
    "copy-bound": "copy-bound; line: copies alone",
    "compute-bound": "compute-bound; line: the step alone",
    "emulated-step-bound": "bound by the emulated step; line: that step",
    "balanced": f"balanced: two ceilings within {BALANCED_WITHIN:g} times",
    ACHIEVED: "achieved, under the ceilings",
}


def keys(used: Iterable[str]) -> list[Key]:
    """The legend of what was drawn."""
    there = set(used)
    return [Key(_SAID[name], TONES[name], MARKS[name]) for name in TONES if name in there]


def look(kinds: Iterable[str]) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape by the field ``bound``, for the kinds that a panel has."""
    there = set(kinds)
    names = [name for name in TONES if name in there]
    tone = alt.Color("bound:N", title=None, scale=alt.Scale(domain=names, range=[TONES[name] for name in names]))
    shape = alt.Shape("bound:N", title=None, scale=alt.Scale(domain=names, range=[MARKS[name] for name in names]))
    return tone, shape


UTILIZATION = ("gpu_util_pct", "cpu_util_pct")


@memoized
def estimated(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate the cells of a run.

    Args:
        trials: rows of ``records.TRIALS``.

    Returns:
        ``analysis.estimates.cells``, with each utilization as the mean over blocks and, under its name with ``_lo`` and
        ``_hi``, the 95 % Student-t interval of that mean (NaN where n < 2), cut off at 0 and 100.
    """
    cells = estimates.cells(trials)
    ended = successful(trials)
    names = list(UTILIZATION)
    keys = [ended[key] for key in (*KEYS, "block")]
    groups = ended[names].astype("float64").groupby(keys).mean().groupby(level=KEYS)
    places = pd.MultiIndex.from_frame(cells[KEYS])
    means, spreads, counts = (found.reindex(places) for found in (groups.mean(), groups.std(), groups.count()))
    columns: dict[str, Any] = {}
    for name in names:
        mean = means[name].to_numpy()
        half = half_width(spreads[name].to_numpy(), counts[name].to_numpy())
        columns |= {name: mean, f"{name}_lo": (mean - half).clip(0, 100), f"{name}_hi": (mean + half).clip(0, 100)}
    return cells.assign(**columns)


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


def ticks(lo: float, hi: float, most: int = 6) -> list[float]:
    """Round values for a logarithmic scale: 1, 2 and 5 of each decade, fewer, or where it is short even steps."""
    decades = range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [step * 10.0**decade for decade in decades for step in steps]
        found = [tick for tick in found if lo * 0.999 <= tick <= hi * 1.001]
        if 3 <= len(found) <= most:
            return found
    if len(found) > most:
        return found[:: -(-len(found) // most)]
    step = next(step for step in _steps((hi - lo) / most) if (hi - lo) / step <= most)
    return [float(f"{step * place:.6g}") for place in range(math.ceil(lo / step), math.floor(hi / step) + 1)]


def _steps(least: float) -> Iterator[float]:
    """Even steps from about a size on: 1, 2 and 5 of each decade."""
    decade = math.floor(math.log10(least))
    return (step * 10.0**power for power in (decade, decade + 1) for step in (1, 2, 5))


def extent(rows: Iterable[Row], names: Sequence[str] = ("value", "lo", "hi")) -> tuple[float, float]:
    """Smallest and largest of positive values, with a little room."""
    values = [float(row[name]) for row in rows for name in names if row[name] is not None and row[name] > 0]
    return min(values) / 1.12, max(values) * 1.12


def logarithmic(rows: Sequence[Row], title: str, room: float = 1.0) -> dict[str, Any]:
    """A logarithmic axis for positive values, for any position channel, with room for names beyond the largest."""
    lo, hi = extent(rows)
    hi *= room
    return {
        "title": title,
        "scale": alt.Scale(type="log", domain=[lo, hi], nice=False),
        "axis": alt.Axis(values=ticks(lo, hi), format=",.3~s", grid=True, domain=False),
    }


def height(count: int, a_row: int = 18) -> int:
    """Of a panel with so many rows, title and axis included."""
    return 96 + a_row * count
