"""Pictures are declared: what stands along their sides, what tells series apart, and the marks. Here they are drawn.

A side is a quantity or a list of names. Where names stand on the left, a :class:`Plot` has a dot a row, its interval to
both sides; else dots stand above the lower side, joined to lines if asked. :class:`Bars` stacks parts to bars.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import altair as alt

from feedrate.charts.figure import MOST_PANELS, Key, Panel, Row, Sheet, data, table
from feedrate.charts.theme import SHAPES, colour, series
from feedrate.schema import words

Looks = Mapping[str, tuple[str, str]]
"""Name of what is drawn to its colour and its shape."""
Fields = Mapping[str, str | tuple[str, str]]
"""Of a tooltip: field with its type to a title (the field's own name if empty), or to title and d3 format."""
BLOCKS: Fields = {"n:Q": "repetitions"}
HEIGHT = 250
"""Of a panel whose left side is a quantity, in CSS pixels."""
_CHANNELS = {"x2": alt.X2, "y2": alt.Y2, "text": alt.Text}
"""What Altair looks for, in milliseconds each time, where an encoding is a mere text."""
_INSIDE = (240, 180)
"""Width and height of what lies between a panel's axes, in CSS pixels."""
_LETTER = 6.5
"""Width of a letter of a name beside a mark."""
_APART = {"labelOverlap": "greedy", "labelSeparation": 4}
"""Of an axis whose labels would touch on phones."""
_FAR = 4.0
"""How far a logarithmic side goes beyond its outermost values; intervals that are longer are cut there."""
_ROOM = 1.6
"""How far a side of deviations goes beyond the largest, so that marks stay clear of the labels."""
ENDS = ("lo", "hi")
"""Fields of a drawn row that hold the ends of its interval."""


@dataclass(frozen=True, slots=True)
class Side:
    """What stands along one side of a picture."""

    key: str
    """Field of the rows."""
    title: str | None = None
    scale: Mapping[str, Any] = field(default_factory=dict)
    axis: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[Any, ...] = ()
    """Names, or steps, in their order; none of a quantity."""

    @property
    def typed(self) -> str:
        """The field with its type, as Altair writes it."""
        return f"{self.key}:{'N' if self.order else 'Q'}"

    def along(self, channel: str, key: str = "", **more: Any) -> dict[str, Any]:
        """Encode a channel, ``x`` or ``y``, by the side's field or by another on the same scale."""
        encoding = {"x": alt.X, "y": alt.Y}[channel]
        more |= {"sort": list(self.order)} if self.order else {}
        shorthand = f"{key}:Q" if key else self.typed
        return {
            channel: encoding(
                shorthand, title=self.title, scale=alt.Scale(**self.scale), axis=alt.Axis(**self.axis), **more
            )
        }


def names(key: str, order: Iterable[Any], **axis: Any) -> Side:
    """Names on the left, from top to bottom in their order."""
    return Side(key, None, {}, {"ticks": False, "domain": False, **axis}, tuple(dict.fromkeys(order)))


def amount(key: str, title: str, form: str = ",.3~s") -> Side:
    """A quantity from zero on; ``form`` is the d3 format of its labels."""
    return Side(key, title, {"zero": True, "nice": 5}, {"format": form, "tickCount": 5, "domain": False})


def log(key: str, title: str, ends: tuple[float, float], form: str = ",.3~s", *, grid: bool = True) -> Side:
    """A positive quantity on a logarithmic scale with these ends."""
    scale = {"type": "log", "domain": list(ends), "nice": False}
    return Side(key, title, scale, {"values": ticks(*ends), "format": form, "grid": grid, "domain": False, **_APART})


def log_of(rows: Sequence[Row], title: str, key: str = "value", ends: Sequence[str] = ENDS, **more: Any) -> Side:
    """A positive quantity of rows and its intervals on a logarithmic scale; it ends at ``_FAR``."""
    (low, high), (least, most) = extent(rows, (key,)), extent(rows, (key, *ends))
    return log(key, title, (max(least, low / _FAR), min(most, high * _FAR)), **more)


def counts(key: str, title: str, values: Collection[int]) -> Side:
    """Small whole numbers, zero among them: far ones stand closer together."""
    scale = {"type": "symlog", "constant": 1, "domain": [min(values) - 0.15, 1.1 * max(values) + 0.1], "nice": False}
    return Side(key, title, scale, {"values": sorted(set(values)), "format": "d", "grid": False})


def deviations(rows: Sequence[Row], key: str, title: str, ends: Sequence[str]) -> Side:
    """Deviations of rows in per cent, and the ends of their intervals: linear within one, logarithmic beyond."""
    far = [_ROOM * row[name] for row in rows for name in (key, *ends) if row[name] is not None]
    low, high = min(-2.0, *far), max(2.0, *far)
    values = [sign * 10.0**power for sign in (-1, 1) for power in range(6)]
    shown = sorted(value for value in values if low <= value <= high)
    scale = {"type": "symlog", "constant": 1, "domain": [low, high], "nice": False}
    # A format of the axis would write all labels in the largest one's unit.
    label = "format(datum.value, '+~s')"
    return Side(key, title, scale, {"values": shown, "labelExpr": label, "grid": True, "domain": False, **_APART})


@dataclass(frozen=True, slots=True)
class Plot:
    """Marks with their intervals."""

    rows: Sequence[Row]
    x: Side
    y: Side
    by: str
    """Field that colours tell apart."""
    looks: Looks
    _: KW_ONLY
    shaped: tuple[str, Mapping[str, str]] | None = None
    """Field that shapes tell apart, with them, where that is another."""
    beside: tuple[str, Sequence[str]] | None = None
    """Field whose values lie beside one another at each place, in their order."""
    joined: bool = False
    """Whether a line joins the marks of a colour."""
    curve: bool = False
    """Whether there is a line in a band, and no marks: what is computed has a value everywhere."""
    ends: tuple[str, str] = ENDS
    """Fields of the drawn ends of intervals, where these are cut."""
    also: Fields = field(default_factory=dict)
    """What the tooltip says beside place, series, value, interval and repetitions."""
    tooltip: Fields | None = None
    """What it says instead."""
    tick: str = ""
    """Field of a second value, which a short line marks."""
    ring: str = ""
    """Field of a value to be held against, which a ring marks."""
    size: int = 60
    row: int = 18
    """Height of a row of dots, in CSS pixels."""
    behind: Sequence[alt.Chart] = ()
    before: Sequence[alt.Chart] = ()

    def layers(self) -> list[alt.Chart]:
        """Draw it, from back to front."""
        sides = ("x", self.x), ("y", self.y)  # where marks stand, and what their value is
        (channel, position), (other, value) = sides[::-1] if self.y.order else sides
        low, high = self.ends
        tooltip = self._tooltip(position, value) if self.tooltip is None else self.tooltip
        fields = [position.key, value.key, self.by, low, high, *(name.rpartition(":")[0] for name in tooltip)]
        fields += [pair[0] for pair in (self.shaped, self.beside) if pair] + list(filter(None, (self.tick, self.ring)))
        used = {row[self.by] for row in self.rows}
        looks = {name: pair for name, pair in self.looks.items() if name in used}
        base = alt.Chart(data(self.rows, *dict.fromkeys(fields)))
        base = base.encode(**position.along(channel), **self._offset(channel), color=tone(self.by, looks))
        known = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        # An area that is drawn of known values alone would bridge the gaps between them.
        cut = value.scale.get("type") == "log"
        spread = base.mark_area(opacity=0.2) if self.curve else known.mark_rule(strokeWidth=1.75, clip=cut)
        line = base.mark_line(strokeWidth=1.75, opacity=0.75, strokeCap="round").encode(**value.along(other))
        key, shapes = self.shaped or (self.by, {name: pair[1] for name, pair in looks.items()})
        shaped = {} if self.curve else {"shape": shape(key, shapes)}
        marks = base.mark_point(filled=True, size=self.size, opacity=0 if self.curve else 1)
        second = base.transform_filter(f"isValid(datum.{self.tick})").mark_tick(thickness=2, size=self.row * 0.6)
        rings = base.transform_filter(f"isValid(datum.{self.ring})").mark_point(size=self.size, strokeWidth=1.5)
        spread = spread.encode(**value.along(other, low), **{f"{other}2": _CHANNELS[f"{other}2"](f"{high}:Q")})
        has_spread = any(row[low] is not None and row[high] is not None for row in self.rows)
        return [
            *self.behind,
            *([second.encode(**value.along(other, self.tick))] if self.tick else []),
            *([rings.encode(**value.along(other, self.ring))] if self.ring else []),
            *([line] if self.joined or self.curve else []),
            *([spread] if has_spread else []),
            marks.encode(**value.along(other), **shaped, tooltip=hover(tooltip)),
            *self.before,
        ]

    def _offset(self, channel: str) -> dict[str, Any]:
        key, order = self.beside or ("", ())
        if len(order) < 2:
            return {}
        offset = {"x": alt.XOffset, "y": alt.YOffset}[channel]
        scale = alt.Scale(domain=list(order), paddingOuter=1 if channel == "x" else 0.6)
        return {f"{channel}Offset": offset(f"{key}:N", sort=list(order), scale=scale)}

    def _tooltip(self, position: Side, value: Side) -> Fields:
        tooltip: dict[str, str | tuple[str, str]] = {position.typed: position.title or "", f"{self.by}:N": ""}
        tooltip |= {f"{self.shaped[0]}:N": ""} if self.shaped else {}
        tooltip |= {**self.also, **rate(value.title or "", value.key)}
        return {**tooltip, **(BLOCKS if all("n" in row for row in self.rows) else {})}

    def panel(self, title: str, subtitle: str | list[str], message: str) -> Panel:
        """Make a panel of it; names take as much height as they need."""
        lines = 1 if isinstance(subtitle, str) else len(subtitle)
        high = height(len(self.y.order), self.row) + 14 * (lines - 1) if self.y.order else HEIGHT
        return Panel.draw(title, subtitle, message, self.layers(), high)


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of parts, which follow one another by their field ``order``."""

    rows: Sequence[Row]
    x: Side
    y: Side
    by: str
    """Field that names parts."""
    tones: Mapping[str, str]
    """Part to its colour."""
    _: KW_ONLY
    whisker: bool = False
    """Whether the whole bar has an interval."""
    asleep: str = ""
    """Part with a dashed edge, as nothing is computed in it."""
    also: Fields = field(default_factory=dict)
    row: int = 21

    def layers(self) -> list[alt.Chart]:
        """Draw them, from back to front."""
        tooltip: Fields = {self.y.typed: "", f"{self.by}:N": "", f"{self.x.key}:Q": (self.x.title or "", ",.3~g")}
        tooltip = {**tooltip, **self.also}
        fields = [self.by, "order", *(name.rpartition(":")[0] for name in tooltip), *(ENDS if self.whisker else ())]
        base = alt.Chart(data(self.rows, *dict.fromkeys(fields))).encode(**self.y.along("y"))
        used = {row[self.by] for row in self.rows}
        stack = base.mark_bar(stroke=colour("paper"), strokeWidth=0.5).encode(
            **self.x.along("x", stack="zero"),
            color=tone(self.by, {name: (tint, "") for name, tint in self.tones.items() if name in used}),
            order=alt.Order("order:Q"),
            tooltip=hover(tooltip),
        )
        stack = stack.encode(**dashed(self.by, self.asleep)) if self.asleep in used else stack
        whole = base.transform_filter("datum.order === 0 && isValid(datum.lo)")
        whisker = whole.mark_rule(color=colour("ink"), strokeWidth=1.5)
        whisker = whisker.encode(**self.x.along("x", "lo"), x2=alt.X2("hi:Q"))
        return [stack, *([whisker] if self.whisker else [])]

    def panel(self, title: str, subtitle: str | list[str], message: str) -> Panel:
        """Make a panel of them, as high as its bars need."""
        return Panel.draw(title, subtitle, message, self.layers(), height(len(self.y.order), self.row))


def mark(kind: str, rows: alt.InlineData, style: Mapping[str, Any], **channels: Any) -> alt.Chart:
    """Draw rows as marks of a kind; ``style`` is that of all of them, ``channels`` are Vega-Lite's encodings."""
    typed = {name: _CHANNELS[name](value) if isinstance(value, str) else value for name, value in channels.items()}
    drawn: alt.Chart = getattr(alt.Chart(rows), f"mark_{kind}")(**style).encode(**typed)
    return drawn


def dashed(key: str, name: str) -> dict[str, Any]:
    """Draw a dashed edge around the bars of a name: nothing is computed in them."""
    sleeps = alt.datum[key] == name
    stroke = alt.condition(sleeps, alt.value(colour("emulated-edge")), alt.value(colour("paper")))
    return {"stroke": stroke, "strokeDash": alt.condition(sleeps, alt.value([3, 2]), alt.value([1, 0]))}


def rule(side: Side, channel: str, at: float, tint: str = "muted") -> alt.Chart:
    """A dashed line across the picture at a value of a side."""
    style = {"color": colour(tint), "strokeDash": [3, 3]}
    return mark("rule", table([{"at": at}]), style, **side.along(channel, "at"))


def band(side: Side, channel: str, ends: tuple[float, float], tint: str = "accent", opacity: float = 0.18) -> alt.Chart:
    """Shade what lies between two values of a side."""
    rows, style = table([{"from": ends[0], "to": ends[1]}]), {"color": colour(tint), "opacity": opacity}
    return mark("rect", rows, style, **side.along(channel, "from"), **{f"{channel}2": "to:Q"})


def written(rows: Sequence[Row], x: Side, y: Side, key: str, *more: str, right: bool = False, dy: int = 0) -> alt.Chart:
    """Write a field beside the marks of rows, on their left or their right; ``more`` fields come with the rows."""
    place = {"align": "left" if right else "right", "dx": 8 if right else -8, "dy": dy}
    style, text = {**place, "fontSize": 12, "color": colour("ink")}, data(rows, x.key, y.key, key, *more)
    return mark("text", text, style, **x.along("x"), **y.along("y"), text=f"{key}:N")


def _shares(rows: Sequence[Row], side: Side) -> list[float]:
    """Places of rows along a side, from 0 to 1."""
    scaled = math.log if side.scale.get("type") == "log" else float
    low, high = map(scaled, side.scale.get("domain") or (0.0, max(row[side.key] for row in rows)))
    return [(scaled(row[side.key]) - low) / (high - low) for row in rows]


def frontier(
    rows: Sequence[Row], best: Sequence[Row], x: Side, y: Side, key: str
) -> tuple[list[alt.Chart], list[alt.Chart]]:
    """Behind marks a line through the best, smallest first; before them a field's names at its ends, where room is."""
    style = {"color": colour("muted"), "strokeDash": [3, 3], "strokeWidth": 1.25}
    line = mark("line", data(best, key, x.key, y.key), style, **x.along("x"), **y.along("y"))
    places = list(zip(_shares(rows, x), _shares(rows, y), strict=True))
    of_best = [places[next(at for at, row in enumerate(rows) if row is one)] for one in best]

    def free(end: tuple[float, float], dy: int, letters: int) -> bool:
        """Whether no mark lies where a name above or below an end would stand."""
        away = 1 if end[0] < 0.5 else -1
        return not any(
            0 < away * (across - end[0]) * _INSIDE[0] < letters * _LETTER + 16
            and abs((up - end[1]) * _INSIDE[1] + dy) < 12
            for across, up in places
        )

    # Where both ends lie close to one another only the better one is named.
    ends = [(-1, (-8, 16)), (0, (16, -8))] if of_best[-1][0] - of_best[0][0] > 0.2 else [(-1, (-8, 16))]
    named = []
    for at, sides in ends:
        if (dy := next((dy for dy in sides if free(of_best[at], dy, len(best[at][key]))), None)) is not None:
            named.append(written([best[at]], x, y, key, right=of_best[at][0] < 0.5, dy=dy))
    return [line], named


def core_marks(cores: Iterable[tuple[str, float | None]], x: Side, end: float) -> list[alt.Chart]:
    """Mark on a side of workers where there are as many as cores of a machine, by its name; once where several have.

    Nothing where that is unknown or beyond the side's end. Rows have ``machine``: readers choose among these.
    """
    counted = [(name, count) for name, count in dict.fromkeys(cores) if count is not None and count <= end]
    if not counted:
        return []
    texts = [words.plural(int(count), "core") if count == int(count) else "cores" for _, count in counted]
    rows = [{"machine": name, "at": count, "text": text} for (name, count), text in zip(counted, texts, strict=True)]
    line = {"color": colour("muted"), "strokeDash": [2, 3]}
    style = {"align": "right", "baseline": "top", "dx": -4, "color": colour("muted")}
    drawn, at = table(rows), x.along("x", "at")
    marks = mark("rule", drawn, line, **at), mark("text", drawn, style, **at, y=alt.value(2), text=alt.Text("text:N"))
    return [first(drawn, "at") if len(counted) > 1 else drawn for drawn in marks]


def first(drawn: alt.Chart, *keys: str) -> alt.Chart:
    """Draw of rows that are alike in some fields the first alone; of all rows where none is named."""
    counted = drawn.transform_window(place="row_number()", groupby=list(keys))
    return counted.transform_filter("datum.place === 1")


def unlike(labels: Iterable[str], every: Sequence[str] = ()) -> Looks:
    """Give each name a colour and a shape; of ``every`` name that there is, it keeps its colour whichever are drawn."""
    drawn = list(dict.fromkeys(labels))
    places = every or drawn
    return {
        name: (colour(f"name-{places.index(name) % 7}"), SHAPES[(at + at // 7) % len(SHAPES)])
        for at, name in enumerate(drawn)
    }


def of_workers(numbers: Sequence[int]) -> Looks:
    """Give each count of workers a step of the ordered ramp and a shape; none is grey."""
    tones = series(len(numbers), bool(numbers) and numbers[0] == 0)
    labels = [words.plural(number, "worker") for number in numbers]
    return {name: (tint, SHAPES[at % len(SHAPES)]) for at, (name, tint) in enumerate(zip(labels, tones, strict=True))}


def keys(looks: Looks, used: Collection[str] | None = None) -> list[Key]:
    """Make a legend of what was drawn, or of all."""
    return [Key(name, *pair) for name, pair in looks.items() if used is None or name in used]


def limit_panels(sheet: Sheet) -> None:
    """Take the panels beyond ``MOST_PANELS`` from a sheet; its table keeps their numbers."""
    if (extra := len(sheet.panels) - MOST_PANELS) > 0:
        del sheet.panels[MOST_PANELS:]
        sheet.note(f"{words.plural(extra, 'more panel')} would fit the records; their numbers are in the table.")


def tone(key: str, looks: Looks) -> alt.Color:
    """Colour by a field of names; the legend is the figure's."""
    scale = alt.Scale(domain=list(looks), range=[pair[0] for pair in looks.values()])
    return alt.Color(f"{key}:N", title=None, scale=scale)


def shape(key: str, shapes: Mapping[str, str]) -> alt.Shape:
    """Shape by a field of names."""
    return alt.Shape(f"{key}:N", title=None, scale=alt.Scale(domain=list(shapes), range=list(shapes.values())))


def hover(fields: Fields) -> list[alt.Tooltip]:
    """Make the tooltip of a mark."""
    tooltips = []
    for name, heading in fields.items():
        title, form = (heading, "") if isinstance(heading, str) else heading
        tooltips.append(alt.Tooltip(name, title=title or alt.Undefined, format=form or alt.Undefined))
    return tooltips


def rate(title: str, value: str = "value") -> Fields:
    """Name the fields of a value and its interval for :func:`hover`."""
    number = ",.4~g"
    return {f"{value}:Q": (title, number), "lo:Q": ("low", number), "hi:Q": ("high", number)}


def height(count: int, a_row: int = 18) -> int:
    """Give the height of a panel with so many rows, title and axis included."""
    return 96 + a_row * count


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
    return [float(f"{step * multiple:.6g}") for multiple in range(math.ceil(lo / step), math.floor(hi / step) + 1)]


def _even_steps(least: float) -> Iterator[float]:
    """1, 2 and 5 of each decade, from about a size on."""
    decade = math.floor(math.log10(least))
    return (step * 10.0**power for power in (decade, decade + 1) for step in (1, 2, 5))


def extent(rows: Iterable[Row], fields: Sequence[str] = ("value", *ENDS)) -> tuple[float, float]:
    """Find the smallest and the largest of positive values, with a little room."""
    values = [float(row[name]) for row in rows for name in fields if row.get(name) is not None and row[name] > 0]
    return min(values) / 1.12, max(values) * 1.12


def unit_of(seconds: float) -> tuple[float, str]:
    """Pick the unit of a time axis for a run that took so long: its seconds, and its name."""
    if seconds < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")
