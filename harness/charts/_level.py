"""Marks around their mean: single trials or blocks, the mean as a line, its 95 % interval as a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from harness.analysis.drift import Estimate
from harness.charts import _words as words
from harness.charts._figure import Row, table
from harness.charts._theme import colour

HEIGHT = 250
KINDS = {"plain": (colour("name-0"), "circle"), "flagged": (colour("source"), "diamond")}
"""Colour and shape of marks; a flagged trial is one of which something is to be said."""


def percent_off(ratio: float) -> float:
    """How far a ratio is from 1, in per cent."""
    return 100 * (ratio - 1)


def layers(rows: Sequence[Row], x: alt.X, title: str, mean: Sequence[float], hover: Sequence[Any]) -> list[alt.Chart]:
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
