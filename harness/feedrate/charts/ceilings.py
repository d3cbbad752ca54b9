"""Training cells under one roof: what each achieves against what feeds it, both divided by what its step could do.

The ceilings of one task as the batch grows, and what was achieved under them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.ceilings import BALANCED_WITHIN, BOUND, STAGES
from feedrate.analysis.estimates import rows_of
from feedrate.charts import marks, workers
from feedrate.charts import marks as charts_marks
from feedrate.charts.figure import EMULATED, Panel, Row, Slice, data, plain, sized, table
from feedrate.charts.marks import ACHIEVED, extent, logarithmic, ticks
from feedrate.charts.theme import colour
from feedrate.schema import words

COLUMNS = {
    "setting": "cell",
    "workload": "workload",
    "patch_size": "patch_size",
    "storage_format": "format",
    "batch_size": "batch",
    "num_workers": "workers",
    "held back by": "bound",
    "samples per s": "rate",
    "low": "rate_lo",
    "high": "rate_hi",
    "n": "n",
    "loader alone": "load",
    "copies alone": "copy",
    "step alone": "compute",
    "feed ÷ step": "x",
    "feed ÷ step: low": "x_lo",
    "feed ÷ step: high": "x_hi",
    "achieved ÷ step": "y",
    "achieved ÷ step: low": "y_lo",
    "achieved ÷ step: high": "y_hi",
    "efficiency": "efficiency",
    "efficiency: low": "efficiency_lo",
    "efficiency: high": "efficiency_hi",
}
_VALUES = {"x": "headroom", "y": "au", "rate": "samples_per_s", "efficiency": "efficiency"}
_ENDS = {
    f"{key}_{end}": end if key == "rate" else f"{column}_{end}"
    for key, column in _VALUES.items()
    for end in ("lo", "hi")
}
_SAID = ("step", "step_ms", "model")
"""Axes that the panel's own subtitle names."""
_LEAST = 0.45
"""The axis of feed begins here at the latest and ends at its inverse at the earliest: the corner is always seen."""


_TOP = 1.7
"""Where the axis of what was achieved ends: room for words above the roof."""


def drawn(part: Slice) -> list[dict[str, Any]]:
    """A row a cell of a slice of ``analysis.roofline``."""
    return [
        {
            "workload": part.workload,
            "patch_size": part.patch_size,
            "format": plain(cell["storage_format"]),
            "batch": int(cell["batch_size"]),
            "workers": int(cell["num_workers"]),
            "bound": str(cell["bottleneck"]),
            "cell": f"{workers.what(cell, _SAID)}, {words.plural(int(cell['num_workers']), 'worker')}",
            **{key: float(cell[column]) for key, column in _VALUES.items()},
            **{key: plain(cell[column]) for key, column in _ENDS.items()},
            **{stage: plain(cell[f"{stage}_ceiling"]) for stage in STAGES},
            "n": int(cell["n"]),
        }
        for cell in rows_of(part.frame)
    ]


def panel(title: str, parts: Sequence[Slice], rows: Sequence[Row]) -> Panel:
    """Draw cells of one kind of step under their common roof.

    Args:
        title: what kind of step.
        parts: the slices that the cells are of.
        rows: of all of them, as :func:`rows_of` gives them.
    """
    low, high = extent(rows, ("x", "x_lo", "x_hi"))
    left, right = min(low / 1.1, _LEAST), max(high * 1.1, 1 / _LEAST)
    bottom = min(extent(rows, ("y", "y_lo", "y_hi"))[0], left)
    x, y = (
        _ratio(left, right, "what feeds it ÷ step alone", "~g"),
        _ratio(bottom, _TOP, "achieved ÷ step alone", ".2~p"),
    )
    tone, shape = charts_marks.look(row["bound"] for row in rows)
    keys = ("cell", "bound", "x", "x_lo", "x_hi", "y", "y_lo", "y_hi", "efficiency", "rate", "n")
    base = alt.Chart(data(rows, *keys)).encode(color=tone)
    across, along = alt.X("x:Q", **x), alt.Y("y:Q", **y)
    upright = base.transform_filter("isValid(datum.y_lo)&&isValid(datum.y_hi)").mark_rule(strokeWidth=1.5)
    level = base.transform_filter("isValid(datum.x_lo)&&isValid(datum.x_hi)").mark_rule(strokeWidth=1.5)
    marks = base.mark_point(filled=True, size=58, opacity=0.9)
    layers = [
        *_lines((left, right, bottom), across, along),
        upright.encode(x=across, y=alt.Y("y_lo:Q", **y), y2=alt.Y2("y_hi:Q")),
        level.encode(y=along, x=alt.X("x_lo:Q", **x), x2=alt.X2("x_hi:Q")),
        marks.encode(x=across, y=along, shape=shape, tooltip=_tooltips()),
    ]
    subtitle = f"{_what(parts)}; {words.plural(len(rows), 'setting')}"
    return Panel(title, subtitle, _message(rows), sized(layers, title, subtitle, 300))


def _ratio(lo: float, hi: float, title: str, form: str) -> dict[str, Any]:
    """A logarithmic axis of ratios to the step alone."""
    return {
        "title": title,
        "scale": alt.Scale(type="log", domain=[lo, hi], nice=False),
        "axis": alt.Axis(
            values=[tick for tick in ticks(lo, hi, 7) if hi != _TOP or tick <= 1],
            format=form,
            grid=False,
            domain=False,
        ),
    }


def _what(parts: Sequence[Slice]) -> str:
    said = list(dict.fromkeys(part.subtitle.removeprefix("real training of ") for part in parts))
    return said[0] if len(said) == 1 else f"{len(said)} steps"


def _lines(ends: tuple[float, float, float], across: alt.X, along: alt.Y) -> list[alt.Chart]:
    """The roof, what lies under it, where both sides are balanced, and what its two parts mean."""
    left, right, bottom = ends
    corner = [{"x": left, "y": left, "y2": bottom}, {"x": 1.0, "y": 1.0, "y2": bottom}]
    corner.append({"x": right, "y": 1.0, "y2": bottom})
    band = [{"x": 1 / BALANCED_WITHIN, "x2": BALANCED_WITHIN, "y": _TOP, "y2": bottom}]
    said = [{"x": left, "y": 1.32, "text": "← fed too slowly"}, {"x": right, "y": 1.32, "text": "step is the limit →"}]
    under, text = alt.Chart(table(corner)).encode(x=across, y=along), alt.Chart(table(said)).encode(x=across, y=along)
    words_ = [
        text.transform_filter(f"datum.x{'<' if align == 'left' else '>'}1").mark_text(
            align=align, dx=4 if align == "left" else -4, fontSize=10, color=colour("muted")
        )
        for align in ("left", "right")
    ]
    balanced = alt.Chart(table(band)).mark_rect(color=colour("heat-1"), opacity=0.4)
    return [
        under.mark_area(color=colour("heat-0")).encode(y2=alt.Y2("y2:Q")),
        balanced.encode(x=across, x2=alt.X2("x2:Q"), y=along, y2=alt.Y2("y2:Q")),
        under.mark_line(color=colour("ink"), strokeWidth=2),
        *(each.encode(text=alt.Text("text:N")) for each in words_),
    ]


def _tooltips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("cell:N", title="setting"),
        alt.Tooltip("bound:N", title="held back by"),
        alt.Tooltip("rate:Q", title="samples per second", format=",.4~g"),
        alt.Tooltip("x:Q", title="feed ÷ step alone", format=".3~g"),
        alt.Tooltip("y:Q", title="achieved ÷ step alone", format=".3~g"),
        alt.Tooltip("efficiency:Q", title="of its roof", format=".0%"),
        alt.Tooltip("n:Q", title="blocks"),
    ]


def _message(rows: Sequence[Row]) -> str:
    """Count what holds cells back, and name the one farthest below its roof."""
    counts = {name: sum(row["bound"] == name for row in rows) for name in charts_marks.TONES}
    parts = words.listed(f"{count} {'is' if count == 1 else 'are'} {name}" for name, count in counts.items() if count)
    said = words.sentence(f"of {words.plural(len(rows), 'setting')}, {parts}")
    known = [row for row in rows if words.known(row["efficiency"])]
    if not known:
        return said
    least, most = (pick(known, key=lambda row: float(row["efficiency"])) for pick in (min, max))
    if least is most:
        return f"{said} {words.sentence(f'it reaches {_reached(least)} of its roof')}"
    return (
        f"{said} Nearest to its roof is {most['cell']}: {_reached(most)} of it; farthest below, {least['cell']}: "
        f"{_reached(least)}."
    )


def _reached(row: Row) -> str:
    lo, hi, n = row["efficiency_lo"], row["efficiency_hi"], row["n"]
    value = words.percent(row["efficiency"])
    if words.known(lo) and words.known(hi):
        return f"{value} (95\u00a0% interval {100 * lo:.0f} to {words.percent(hi)}, n = {n})"
    return f"{value} ({words.interval(math.nan, math.nan, n)})"


CEILING_COLUMNS = {
    "batch_size": "batch",
    "num_workers": "workers",
    "line": "line",
    "samples per s": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
}
_ALONE = {"load": "loader alone", "copy": "copies alone", "compute": "step alone"}


def draw_ceilings(frame: pd.DataFrame, kind: str) -> list[dict[str, Any]]:
    """List what was achieved and each ceiling, by batch size, with the worker count that is fastest at the largest.

    Args:
        frame: rows of ``analysis.roofline`` of one task, in which batch size and workers differ.
        kind: of step.
    """
    best = frame.sort_values(["batch_size", "samples_per_s"])["num_workers"].iloc[-1]
    cells = frame[frame["num_workers"].eq(best).fillna(False)].sort_values("batch_size")
    return [row for cell in rows_of(cells) for row in _ceiling_lines(cell, kind)]


def _ceiling_lines(cell: Any, kind: str) -> list[dict[str, Any]]:
    """The marks of one cell; an emulated step's rate is declared, and has no blocks."""
    own = {"batch": int(cell["batch_size"]), "workers": int(cell["num_workers"])}
    step = ("emulated-step-bound", "step, as declared") if kind == EMULATED else (BOUND["compute"], _ALONE["compute"])
    said = {stage: (BOUND[stage], _ALONE[stage]) for stage in STAGES} | {"compute": step}
    rows = [
        {
            **own,
            "bound": said[stage][0],
            "line": said[stage][1],
            "value": float(cell[f"{stage}_ceiling"]),
            "lo": plain(cell[f"{stage}_lo"]),
            "hi": plain(cell[f"{stage}_hi"]),
            "n": int(cell[f"{stage}_n"]) or None,
        }
        for stage in STAGES
        if plain(cell[f"{stage}_ceiling"]) is not None
    ]
    got = {"value": float(cell["samples_per_s"]), "lo": plain(cell["lo"]), "hi": plain(cell["hi"]), "n": int(cell["n"])}
    return [*rows, {**own, "bound": ACHIEVED, "line": ACHIEVED, **got}]


def ceilings_panel(part: Slice, rows: Sequence[Row]) -> Panel:
    """Draw the lines.

    Args:
        part: the task.
        rows: as :func:`rows_of` gives them, of two batch sizes or more.
    """
    y = logarithmic(rows, "samples per second")
    x = alt.X("batch:O", title="batch size", axis=alt.Axis(labelAngle=0), scale=alt.Scale(padding=0.4))
    tone, shape = marks.look(row["bound"] for row in rows)
    base = alt.Chart(data(rows, "batch", "line", "bound", "value", "lo", "hi", "n")).encode(x=x, color=tone)
    dash = alt.condition(alt.datum.bound != ACHIEVED, alt.value([5, 3]), alt.value([1, 0]))
    along = alt.Y("value:Q", **y)
    whisker = base.transform_filter("isValid(datum.lo)&&isValid(datum.hi)").mark_rule(strokeWidth=1.5)
    tooltip = [
        alt.Tooltip("line:N"),
        alt.Tooltip("batch:O", title="batch size"),
        alt.Tooltip("value:Q", title="samples per second", format=",.4~g"),
        alt.Tooltip("lo:Q", title="low", format=",.4~g"),
        alt.Tooltip("hi:Q", title="high", format=",.4~g"),
        alt.Tooltip("n:Q", title="blocks"),
    ]
    first = min(row["batch"] for row in rows)
    names = [{**row, "text": row["line"]} for row in rows if row["batch"] == first]
    layers = [
        base.mark_line(strokeWidth=2).encode(y=along, strokeDash=dash),
        whisker.encode(y=alt.Y("lo:Q", **y), y2=alt.Y2("hi:Q")),
        base.mark_point(filled=True, size=50, opacity=1).encode(y=along, shape=shape, tooltip=tooltip),
        *(layer for achieved in (False, True) for layer in _named(names, achieved, x, along, tone)),
    ]
    title = f"{part.title}, {words.plural(int(rows[0]['workers']), 'worker')}"
    return Panel(title, part.subtitle, _ceilings_message(rows), sized(layers, title, part.subtitle, 300))


def _named(rows: Sequence[Row], achieved: bool, x: alt.X, along: alt.Y, tone: alt.Color) -> Iterator[alt.Chart]:
    """Names of lines at their first mark, above a ceiling, below what was achieved; paper around them, over lines."""
    own = [row for row in rows if (row["bound"] == ACHIEVED) == achieved]
    base = alt.Chart(data(own, "batch", "bound", "value", "text")).encode(x=x, y=along, text=alt.Text("text:N"))
    below = 13 if achieved else -10
    halo = base.mark_text(align="left", dx=8, dy=below, fontSize=10, stroke=colour("paper"), strokeWidth=4)
    yield halo.encode(color=alt.ColorValue(colour("paper")))
    yield base.mark_text(align="left", dx=8, dy=below, fontSize=10).encode(color=tone)


def _ceilings_message(rows: Sequence[Row]) -> str:
    """At the largest batch: what was achieved, and the lowest ceiling."""
    batch = max(row["batch"] for row in rows)
    end = [row for row in rows if row["batch"] == batch]
    got = next(row for row in end if row["bound"] == ACHIEVED)
    roof = min((row for row in end if row["bound"] != ACHIEVED), key=lambda row: float(row["value"]))
    basis = words.interval(roof["lo"], roof["hi"], roof["n"]) if roof["n"] else "declared"
    return words.sentence(
        f"at batch {batch}, {words.number(got['value'])} samples/s are achieved "
        f"({words.interval(got['lo'], got['hi'], got['n'])}); the lowest ceiling is the {roof['line']}: "
        f"{words.number(roof['value'])} ({basis})"
    )
