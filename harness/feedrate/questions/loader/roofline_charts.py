"""The pipeline's roofline: what a training cell achieves against what its loader, its copies and its step do alone.

In the first panels both axes are divided by what the step alone could do, so that cells of every task stand under one
roof: where the roof slants, the cell is fed too slowly; where it is flat, the step has all that it can take. The panels
after them show the ceilings of single tasks as the batch grows, and what was achieved under them. It does not show that
a cell could reach its roof: on a CPU loader and model share the cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis import ceilings
from feedrate.analysis.ceilings import BALANCED_WITHIN, BOUND, LAUNCH_BOUND, LAUNCHING, STAGES
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, TRAIN
from feedrate.charts.figure import (
    MOST_PANELS,
    RATE,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    Slice,
    chart,
    data,
    held,
    interval,
    listed,
    percent_interval,
    plain,
    point,
    slices,
    table,
    with_ends,
)
from feedrate.charts.marks import BLOCKS, extent, hover, lines, log_axis, logarithmic, look, rate
from feedrate.charts.theme import PHASE_COLOURS, colour
from feedrate.questions.workers.charts import what
from feedrate.schema import words

ACHIEVED = "achieved"
IN_TURNS = "copies and step in turns"
LOOKS = {
    "loader-bound": (PHASE_COLOURS["fetch"], "circle"),
    "copy-bound": (PHASE_COLOURS["h2d"], "triangle-up"),
    "compute-bound": (PHASE_COLOURS["forward"], "square"),
    "emulated-step-bound": (colour("emulated-edge"), "square"),
    LAUNCH_BOUND: (PHASE_COLOURS["backward"], "triangle-down"),
    "balanced": (colour("accent"), "diamond"),
    IN_TURNS: (PHASE_COLOURS["optimizer"], "triangle-right"),
    ACHIEVED: (colour("ink"), "cross"),
}
"""Bottlenecks of ``analysis.ceilings``, in the colour of the phase that each is about; and what was achieved."""
_LEGEND = {
    "loader-bound": "loader-bound; line: the loader alone",
    "copy-bound": "copy-bound; line: copies alone",
    "compute-bound": "compute-bound; line: the step alone",
    "emulated-step-bound": "bound by the emulated step; line: that step",
    LAUNCH_BOUND: f"launch-bound: the host launches {100 * LAUNCHING:g} % of the time or more",
    "balanced": f"balanced: two ceilings within {BALANCED_WITHIN:g} times",
    IN_TURNS: "line: copies and step, which take turns on one stream",
    ACHIEVED: "achieved, under the ceilings",
}
_KINDS = {TRAIN: "Real training", EMULATED: "Before an emulated step"}
_ALONE = {"load": "loader alone", "copy": "copies alone", "compute": "step alone"}
_RATIOS = {"x": "headroom", "y": "au", "efficiency": "efficiency"}
_ROOF_COLUMNS = {
    "setting": "cell",
    "workload": "workload",
    "patch_size": "patch_size",
    "storage_format": "format",
    "batch_size": "batch",
    "num_workers": "workers",
    "held back by": "bound",
    **RATE,
    "loader alone": "load",
    "copies alone": "copy",
    "step alone": "compute",
    **with_ends("feed ÷ step", "x"),
    **with_ends("achieved ÷ step", "y"),
    **with_ends("efficiency", "efficiency"),
}
_CEILING_COLUMNS = {"batch_size": "batch", "num_workers": "workers", "line": "line", **RATE}
_CORNER = 0.45
"""The axis of feed begins here at the latest and ends at its inverse at the earliest: the corner is always seen."""
_TOP = 1.7
"""Where the axis of what was achieved ends: room for words above the roof."""
_MISSING = "No training cell ran here whose loader and step were both measured alone, so that its roof is not known."


@chart("Pipeline roofline", "What is each setting’s roof, and how far below it does it stay?")
def roofline(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a roof for real training and one for emulated steps, then the ceilings of single tasks."""
    used = set[str]()
    parts = slices(ceilings.roofline(trials), (TRAIN, EMULATED)) if len(trials) else []
    for kind, title in _KINDS.items():
        own = [part for part in parts if part.kind == kind]
        if rows := [_roof_row(part, cell) for part in own for cell in rows_of(part.frame)]:
            sheet.add(_roof(title, own, rows), listed(rows, {"panel": title}, _ROOF_COLUMNS))
            used |= {str(row["bound"]) for row in rows}
    for part in parts:
        frame, kept = held(part.frame, ("batch_size", "num_workers"))
        rows = _ceiling_rows(frame, part.kind)
        if len({row["batch"] for row in rows}) > 1 and len(sheet.panels) < MOST_PANELS:
            given = {"panel": f"{part.title}, {part.subtitle}"}
            sheet.add(_ceilings(part, rows), listed(rows, given, _CEILING_COLUMNS), kept)
            used |= {str(row["bound"]) for row in rows}
    sheet.note(
        "The roof: achieved ÷ step alone can be no more than 1 (flat), and no more than feed ÷ step alone (slanted); "
        "the feed is the slower of loader and copies, each alone. In the shaded middle both hold the cell back. "
        "Intervals are Student’s t over blocks on logs, paired by block where both sides were measured; an emulated "
        "step’s rate is declared."
    )
    if len(trials) and trials["device"].eq("cpu").fillna(False).any() and any(part.kind == TRAIN for part in parts):
        sheet.note(
            "On a CPU, workers and model share the cores: no setting can have both ceilings at once, and one that "
            "stays below its roof wastes nothing by that alone."
        )
    if any(part.frame["device_ceiling"].notna().any() for part in parts):
        sheet.note(
            "Where copies and step share a stream they take turns: what copies can feed is then "
            "1 ÷ (1/copies + 1/step), and of the two the longer is named."
        )
    return sheet.figure([Key(_LEGEND[name], *LOOKS[name]) for name in LOOKS if name in used], _MISSING)


def _roof_row(part: Slice, cell: Row) -> dict[str, Any]:
    """A cell under its roof; the panel's subtitle names its step and model."""
    setting = what(cell, ("step", "step_ms", "model"))
    row = point(cell)
    return {
        **row,
        "workload": part.workload,
        "patch_size": part.patch_size,
        "format": plain(cell["storage_format"]),
        "bound": str(cell["bottleneck"]),
        "cell": f"{setting}, {words.plural(row['workers'], 'worker')}",
        "rate": row["value"],
        **{f"{key}{end}": plain(cell[f"{name}{end}"]) for key, name in _RATIOS.items() for end in ("", "_lo", "_hi")},
        **{stage: plain(cell[f"{stage}_ceiling"]) for stage in STAGES},
    }


def _roof(title: str, parts: Sequence[Slice], rows: Sequence[Row]) -> Panel:
    """Draw cells of one kind of step under their common roof."""
    low, high = extent(rows, ("x", "x_lo", "x_hi"))
    left, right = min(low / 1.1, _CORNER), max(high * 1.1, 1 / _CORNER)
    bottom = min(extent(rows, ("y", "y_lo", "y_hi"))[0], left)
    x = log_axis(left, right, "what feeds it ÷ step alone", "~g", grid=False)
    y = log_axis(bottom, _TOP, "achieved ÷ step alone", ".2~p", grid=False)
    tone, shape = look("bound", LOOKS, {str(row["bound"]) for row in rows})
    fields = ("cell", "bound", "x", "x_lo", "x_hi", "y", "y_lo", "y_hi", "efficiency", "rate", "n")
    base = alt.Chart(data(rows, *fields)).encode(color=tone)
    across, along = alt.X("x:Q", **x), alt.Y("y:Q", **y)
    upright = base.transform_filter("isValid(datum.y_lo)&&isValid(datum.y_hi)").mark_rule(strokeWidth=1.5)
    level = base.transform_filter("isValid(datum.x_lo)&&isValid(datum.x_hi)").mark_rule(strokeWidth=1.5)
    tooltip = hover(
        {
            "cell:N": "setting",
            "bound:N": "held back by",
            "rate:Q": ("samples per second", ",.4~g"),
            "x:Q": ("feed ÷ step alone", ".3~g"),
            "y:Q": ("achieved ÷ step alone", ".3~g"),
            "efficiency:Q": ("of its roof", ".0%"),
            "n:Q": "blocks",
        }
    )
    layers = [
        *_roof_lines((left, right, bottom), across, along),
        upright.encode(x=across, y=alt.Y("y_lo:Q", **y), y2=alt.Y2("y_hi:Q")),
        level.encode(y=along, x=alt.X("x_lo:Q", **x), x2=alt.X2("x_hi:Q")),
        base.mark_point(filled=True, size=58, opacity=0.9).encode(x=across, y=along, shape=shape, tooltip=tooltip),
    ]
    steps = list(dict.fromkeys(part.subtitle.removeprefix("real training of ") for part in parts))
    step = steps[0] if len(steps) == 1 else f"{len(steps)} steps"
    return Panel.draw(title, f"{step}; {words.plural(len(rows), 'setting')}", _roof_message(rows), layers, 300)


def _roof_lines(ends: tuple[float, float, float], across: alt.X, along: alt.Y) -> list[alt.Chart]:
    """The roof, what lies under it, where both sides are balanced, and what its two parts mean."""
    left, right, bottom = ends
    corner = [{"x": x, "y": min(x, 1.0), "y2": bottom} for x in (left, 1.0, right)]
    band = [{"x": 1 / BALANCED_WITHIN, "x2": BALANCED_WITHIN, "y": _TOP, "y2": bottom}]
    meaning = [{"x": left, "y": 1.32, "text": "← fed too slowly"}]
    meaning.append({"x": right, "y": 1.32, "text": "step is the limit →"})
    under = alt.Chart(table(corner)).encode(x=across, y=along)
    text = alt.Chart(table(meaning)).encode(x=across, y=along, text=alt.Text("text:N"))
    balanced = alt.Chart(table(band)).mark_rect(color=colour("heat-1"), opacity=0.4)
    style: dict[str, Any] = {"fontSize": 10, "color": colour("muted")}
    return [
        under.mark_area(color=colour("heat-0")).encode(y2=alt.Y2("y2:Q")),
        balanced.encode(x=across, x2=alt.X2("x2:Q"), y=along, y2=alt.Y2("y2:Q")),
        under.mark_line(color=colour("ink"), strokeWidth=2),
        text.transform_filter("datum.x<1").mark_text(align="left", dx=4, **style),
        text.transform_filter("datum.x>1").mark_text(align="right", dx=-4, **style),
    ]


def _roof_message(rows: Sequence[Row]) -> str:
    """Count what holds cells back, and name the one farthest below its roof."""
    counts = {name: sum(row["bound"] == name for row in rows) for name in LOOKS}
    parts = words.listed(f"{count} {'is' if count == 1 else 'are'} {name}" for name, count in counts.items() if count)
    text = words.sentence(f"of {words.plural(len(rows), 'setting')}, {parts}")
    known = [row for row in rows if words.known(row["efficiency"])]
    if not known:
        return text
    least, most = (pick(known, key=lambda row: float(row["efficiency"])) for pick in (min, max))
    if least is most:
        return f"{text} {words.sentence(f'it reaches {_reached(least)} of its roof')}"
    return (
        f"{text} Nearest to its roof is {most['cell']}: {_reached(most)} of it; farthest below, {least['cell']}: "
        f"{_reached(least)}."
    )


def _reached(row: Row) -> str:
    return f"{words.percent(row['efficiency'])} ({percent_interval(row, 'efficiency')})"


def _ceiling_rows(frame: pd.DataFrame, kind: str) -> list[dict[str, Any]]:
    """Ceilings and what was achieved by batch size, with the worker count that is fastest at the largest."""
    best = frame.sort_values(["batch_size", "samples_per_s"])["num_workers"].iloc[-1]
    looks = {stage: (BOUND[stage], name) for stage, name in _ALONE.items()} | {"device": (IN_TURNS, IN_TURNS)}
    if kind == EMULATED:
        looks["compute"] = ("emulated-step-bound", "step, as declared")
    rows = []
    for cell in rows_of(frame[frame["num_workers"].eq(best).fillna(False)].sort_values("batch_size")):
        got = point(cell)
        for stage, (bound, line) in looks.items():
            if (value := plain(cell[f"{stage}_ceiling"])) is not None:
                ends = {end: plain(cell[f"{stage}_{end}"]) for end in ("lo", "hi")}
                alone = {"value": float(value), **ends, "n": int(cell[f"{stage}_n"]) or None}
                rows.append({**got, **alone, "bound": bound, "line": line})
        rows.append({**got, "bound": ACHIEVED, "line": ACHIEVED})
    return rows


def _ceilings(part: Slice, rows: Sequence[Row]) -> Panel:
    """Draw ceilings as dashed lines, what was achieved as a whole one, each with its name."""
    y = logarithmic(rows, "samples per second")
    x = alt.X("batch:O", title="batch size", axis=alt.Axis(labelAngle=0), scale=alt.Scale(padding=0.4))
    tone, shape = look("bound", LOOKS, {str(row["bound"]) for row in rows})
    base = alt.Chart(data(rows, "batch", "line", "bound", "value", "lo", "hi", "n")).encode(x=x, color=tone)
    dash = alt.condition(alt.datum.bound != ACHIEVED, alt.value([5, 3]), alt.value([1, 0]))
    along = alt.Y("value:Q", **y)
    tooltip = hover({"line:N": "", "batch:O": "batch size", **rate("samples per second"), **BLOCKS})
    _, *marks = lines(base, y, shape, tooltip, width=1.5, size=50)
    layers = [base.mark_line(strokeWidth=2).encode(y=along, strokeDash=dash), *marks]
    first = min(row["batch"] for row in rows)
    for achieved, below in ((False, -10), (True, 13)):
        own = [
            {**row, "text": row["line"]}
            for row in rows
            if row["batch"] == first and (row["bound"] == ACHIEVED) == achieved
        ]
        named = alt.Chart(data(own, "batch", "bound", "value", "text")).encode(x=x, y=along, text=alt.Text("text:N"))
        style: dict[str, Any] = {"align": "left", "dx": 8, "dy": below, "fontSize": 10}
        halo = named.mark_text(stroke=colour("paper"), strokeWidth=4, **style)
        layers += [halo.encode(color=alt.ColorValue(colour("paper"))), named.mark_text(**style).encode(color=tone)]
    title = f"{part.title}, {words.plural(int(rows[0]['workers']), 'worker')}"
    return Panel.draw(title, part.subtitle, _ceilings_message(rows), layers, 300)


def _ceilings_message(rows: Sequence[Row]) -> str:
    """At the largest batch: what was achieved, and the lowest ceiling."""
    batch = max(row["batch"] for row in rows)
    end = [row for row in rows if row["batch"] == batch]
    got = next(row for row in end if row["bound"] == ACHIEVED)
    roof = min((row for row in end if row["bound"] != ACHIEVED), key=lambda row: float(row["value"]))
    basis = interval(roof) if roof["n"] else "declared"
    return words.sentence(
        f"at batch {batch}, {words.number(got['value'])} samples/s are achieved ({interval(got)}); the lowest ceiling "
        f"is the {roof['line']}: {words.number(roof['value'])} ({basis})"
    )
