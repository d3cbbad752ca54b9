"""The grammar of charts: scales, colours and shapes by name, tooltips, and the layers that several charts draw.

Rows of dots have a name on the left and their interval to both sides; lines have it above and below; tiles have their
number and, small, its spread.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from feedrate.charts.figure import Key, Row, table
from feedrate.charts.theme import HEAT_STEPS, SHAPES, colour, series
from feedrate.schema import words

Looks = Mapping[str, tuple[str, str]]
"""Name of what is drawn to its colour and its shape."""
Fields = Mapping[str, str | tuple[str, str]]
"""Of a tooltip: field with its type to a title (the field's own name if empty), or to title and d3 format."""
BLOCKS: Fields = {"n:Q": "repetitions"}
HEIGHT = 250
"""Of a panel of lines, in CSS pixels."""


def tone(field: str, tones: Mapping[str, str]) -> alt.Color:
    """Colour by a field of names; the legend is the figure's."""
    return alt.Color(f"{field}:N", title=None, scale=alt.Scale(domain=list(tones), range=list(tones.values())))


def shape(field: str, shapes: Mapping[str, str]) -> alt.Shape:
    """Shape by a field of names."""
    return alt.Shape(f"{field}:N", title=None, scale=alt.Scale(domain=list(shapes), range=list(shapes.values())))


def look(field: str, looks: Looks, used: Collection[str]) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape by a field of names, for those that a panel has."""
    here = {name: pair for name, pair in looks.items() if name in used}
    tones, shapes = ({name: pair[at] for name, pair in here.items()} for at in (0, 1))
    return tone(field, tones), shape(field, shapes)


def hover(fields: Fields) -> list[alt.Tooltip]:
    """Make the tooltip of a mark."""
    tooltips = []
    for field, heading in fields.items():
        title, form = (heading, "") if isinstance(heading, str) else heading
        tooltips.append(alt.Tooltip(field, title=title or alt.Undefined, format=form or alt.Undefined))
    return tooltips


def rate(title: str, value: str = "value", lo: str = "lo", hi: str = "hi") -> Fields:
    """Name the fields of a value and its interval for :func:`hover`."""
    number = ",.4~g"
    return {f"{value}:Q": (title, number), f"{lo}:Q": ("low", number), f"{hi}:Q": ("high", number)}


def names(field: str, order: Sequence[str], **axis: Any) -> alt.Y:
    """Names of rows on the left, from top to bottom in their order."""
    return alt.Y(f"{field}:N", sort=list(order), title=None, axis=alt.Axis(ticks=False, domain=False, **axis))


def height(count: int, a_row: int = 18) -> int:
    """Give the height of a panel with so many rows, title and axis included."""
    return 96 + a_row * count


def dots(
    base: alt.Chart,
    x: Mapping[str, Any],
    shape: alt.Shape,
    tooltip: list[alt.Tooltip],
    *,
    fields: tuple[str, str, str] = ("value", "lo", "hi"),
    size: int = 62,
    **rule: Any,
) -> list[alt.Chart]:
    """Draw a dot a row, which ``base`` places and colours, with its interval to both sides; ``rule`` is its style."""
    value, lo, hi = fields
    spread = base.transform_filter(f"isValid(datum.{lo}) && isValid(datum.{hi})")
    rule = rule or {"strokeWidth": 3, "opacity": 0.45}
    return [
        spread.mark_rule(**rule).encode(x=alt.X(f"{lo}:Q", **x), x2=alt.X2(f"{hi}:Q")),
        base.mark_point(filled=True, size=size, opacity=1).encode(
            x=alt.X(f"{value}:Q", **x), shape=shape, tooltip=tooltip
        ),
    ]


def lines(
    base: alt.Chart,
    y: Mapping[str, Any],
    shape: alt.Shape,
    tooltip: list[alt.Tooltip],
    *,
    fields: tuple[str, str, str] = ("value", "lo", "hi"),
    width: float = 1.75,
    size: int = 55,
) -> list[alt.Chart]:
    """Draw lines, where ``base`` places and colours them, with marks and the interval of each above and below it."""
    value, lo, hi = fields
    along = alt.Y(f"{value}:Q", **y)
    spread = base.transform_filter(f"isValid(datum.{lo})&&isValid(datum.{hi})").mark_rule(strokeWidth=width)
    return [
        base.mark_line(strokeWidth=1.75, opacity=0.75).encode(y=along),
        spread.encode(y=alt.Y(f"{lo}:Q", **y), y2=alt.Y2(f"{hi}:Q")),
        base.mark_point(filled=True, size=size, opacity=1).encode(y=along, shape=shape, tooltip=tooltip),
    ]


def tiles(
    base: alt.Chart, small: str, edge: float, sizes: tuple[float, float], places: tuple[int, int]
) -> list[alt.Chart]:
    """Draw a tile a worker count, with a number and something small below it.

    Args:
        base: has the vertical place; its rows have ``workers``, ``step`` of the ramp and ``text``, the number.
        small: field of what stands below.
        edge: width of the gap between tiles, in pixels like all that follow.
        sizes: of both texts.
        places: of both texts, below the middle.
    """
    axis = alt.Axis(labelAngle=0, ticks=False, domain=False)
    base = base.encode(x=alt.X("workers:O", title="workers", axis=axis))
    steps = range(HEAT_STEPS)
    ramp = alt.Scale(domain=list(steps), range=[colour(f"heat-{step}") for step in steps])
    ink = alt.condition(alt.datum.step >= 3, alt.value(colour("paper")), alt.value(colour("ink")))
    large = base.mark_text(fontSize=sizes[0], fontWeight="bold", dy=places[0])
    return [
        base.mark_rect(stroke=colour("paper"), strokeWidth=edge).encode(
            color=alt.Color("step:O", legend=None, scale=ramp)
        ),
        large.encode(text=alt.Text("text:N"), color=ink),
        base.mark_text(fontSize=sizes[1], dy=places[1]).encode(text=alt.Text(f"{small}:N"), color=ink),
    ]


class Series:
    """Worker counts with the same colour and shape in every panel of a figure, over batch size."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.labels = [words.plural(count, "worker") for count in counts]
        self.colours = series(len(counts), bool(counts) and counts[0] == 0)
        self.shapes = [SHAPES[place % len(SHAPES)] for place in range(len(counts))]

    def keys(self) -> list[Key]:
        """Give the legend of the series."""
        return [Key(*entry) for entry in zip(self.labels, self.colours, self.shapes, strict=True)]

    def layers(self, rows: Sequence[Row], title: str, axis_format: str, scale: alt.Scale) -> list[alt.Chart]:
        """Draw lines, intervals and points over an axis of values, those of a batch size beside one another."""
        base = alt.Chart(table(rows)).encode(
            x=alt.X("batch:O", title="batch size", axis=alt.Axis(labelAngle=0), scale=alt.Scale(paddingInner=0.1)),
            xOffset=alt.XOffset("series:N", sort=self.labels, scale=alt.Scale(domain=self.labels, paddingOuter=1)),
            color=tone("series", dict(zip(self.labels, self.colours, strict=True))),
        )
        y = {"title": title, "axis": alt.Axis(format=axis_format, tickCount=5), "scale": scale}
        marks = shape("series", dict(zip(self.labels, self.shapes, strict=True)))
        return lines(base, y, marks, hover({"batch:O": "batch size", "series:N": "workers", **rate(title), **BLOCKS}))


def ticks(lo: float, hi: float, most: int = 6) -> list[float]:
    """List round values for a logarithmic scale: 1, 2 and 5 of each decade, fewer, or where it is short even steps."""
    decades = range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        values = [step * 10.0**decade for decade in decades for step in steps]
        values = [tick for tick in values if lo * 0.999 <= tick <= hi * 1.001]
        if 3 <= len(values) <= most:
            return values
    if len(values) > most:
        return values[:: -(-len(values) // most)]
    step = next(step for step in _even_steps((hi - lo) / most) if (hi - lo) / step <= most)
    return [float(f"{step * place:.6g}") for place in range(math.ceil(lo / step), math.floor(hi / step) + 1)]


def _even_steps(least: float) -> Iterator[float]:
    """1, 2 and 5 of each decade, from about a size on."""
    decade = math.floor(math.log10(least))
    return (step * 10.0**power for power in (decade, decade + 1) for step in (1, 2, 5))


def extent(rows: Iterable[Row], fields: Sequence[str] = ("value", "lo", "hi")) -> tuple[float, float]:
    """Find the smallest and the largest of positive values, with a little room."""
    values = [float(row[name]) for row in rows for name in fields if row[name] is not None and row[name] > 0]
    return min(values) / 1.12, max(values) * 1.12


def logarithmic(rows: Sequence[Row], title: str, room: float = 1.0) -> dict[str, Any]:
    """Make a logarithmic axis for positive values, for any position channel, with room beyond the largest."""
    lo, hi = extent(rows)
    return log_axis(lo, hi * room, title)


def log_axis(lo: float, hi: float, title: str, form: str = ",.3~s", *, grid: bool = True) -> dict[str, Any]:
    """Make a logarithmic axis with these ends, for any position channel; ``form`` is the d3 format of its labels."""
    return {
        "title": title,
        "scale": alt.Scale(type="log", domain=[lo, hi], nice=False),
        "axis": alt.Axis(values=ticks(lo, hi), format=form, grid=grid, domain=False),
    }


def unit_of(seconds: float) -> tuple[float, str]:
    """Pick the unit of a time axis for a run that took so long: its seconds, and its name."""
    if seconds < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")
