"""The ceilings of one task as the batch grows, and what was achieved under them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import pandas as pd

from harness.analysis.ceilings import BOUND, STAGES
from harness.analysis.rows import rows_of
from harness.charts import _bounds as bounds
from harness.charts import _storage as shared
from harness.charts import _words as words
from harness.charts._bounds import ACHIEVED
from harness.charts._figure import Panel, Row, sized
from harness.charts._slices import EMULATED, Slice, plain
from harness.charts._theme import colour

COLUMNS = {
    "batch_size": "batch",
    "num_workers": "workers",
    "line": "line",
    "samples per s": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
}
_ALONE = {"load": "loader alone", "copy": "copies alone", "compute": "step alone"}


def drawn(frame: pd.DataFrame, kind: str) -> list[dict[str, Any]]:
    """List what was achieved and each ceiling, by batch size, with the worker count that is fastest at the largest.

    Args:
        frame: rows of ``analysis.roofline`` of one task, in which batch size and workers differ.
        kind: of step.
    """
    best = frame.sort_values(["batch_size", "samples_per_s"])["num_workers"].iloc[-1]
    cells = frame[frame["num_workers"].eq(best).fillna(False)].sort_values("batch_size")
    return [row for cell in rows_of(cells) for row in _lines(cell, kind)]


def _lines(cell: Any, kind: str) -> list[dict[str, Any]]:
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


def panel(part: Slice, rows: Sequence[Row]) -> Panel:
    """Draw the lines.

    Args:
        part: the task.
        rows: as :func:`rows_of` gives them, of two batch sizes or more.
    """
    y = shared.logarithmic(rows, "samples per second")
    x = alt.X("batch:O", title="batch size", axis=alt.Axis(labelAngle=0), scale=alt.Scale(padding=0.4))
    tone, shape = bounds.look(row["bound"] for row in rows)
    base = alt.Chart(shared.data(rows, "batch", "line", "bound", "value", "lo", "hi", "n")).encode(x=x, color=tone)
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
    return Panel(title, part.subtitle, _message(rows), sized(layers, title, part.subtitle, 300))


def _named(rows: Sequence[Row], achieved: bool, x: alt.X, along: alt.Y, tone: alt.Color) -> Iterator[alt.Chart]:
    """Names of lines at their first mark, above a ceiling, below what was achieved; paper around them, over lines."""
    own = [row for row in rows if (row["bound"] == ACHIEVED) == achieved]
    base = alt.Chart(shared.data(own, "batch", "bound", "value", "text")).encode(x=x, y=along, text=alt.Text("text:N"))
    below = 13 if achieved else -10
    halo = base.mark_text(align="left", dx=8, dy=below, fontSize=10, stroke=colour("paper"), strokeWidth=4)
    yield halo.encode(color=alt.ColorValue(colour("paper")))
    yield base.mark_text(align="left", dx=8, dy=below, fontSize=10).encode(color=tone)


def _message(rows: Sequence[Row]) -> str:
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
