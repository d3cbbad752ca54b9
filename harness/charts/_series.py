"""Lines of an ordered series (worker counts) over batch size: colour, shape and sideways shift tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from harness.charts import _words as words
from harness.charts._figure import Key
from harness.charts._theme import SHAPES, colour, series


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


def marks(base: alt.Chart, over: Series, title: str, axis_format: str, scale: alt.Scale) -> list[alt.Chart]:
    """Draw lines, intervals and points.

    Args:
        base: a chart whose rows have ``batch``, ``series``, ``value``, ``lo``, ``hi`` and ``n``.
        over: the series.
        title: of the value axis, with its unit.
        axis_format: d3 format of the value axis.
        scale: of the value axis.
    """
    x = alt.X("batch:O", title="batch size", axis=alt.Axis(labelAngle=0), scale=alt.Scale(paddingInner=0.1))
    shift = alt.XOffset("series:N", sort=over.labels, scale=alt.Scale(domain=over.labels, paddingOuter=1))
    tone = alt.Color("series:N", title=None, scale=alt.Scale(domain=over.labels, range=over.colours))
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
            shape=alt.Shape("series:N", title=None, scale=alt.Scale(domain=over.labels, range=over.shapes)),
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
