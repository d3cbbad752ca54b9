"""What the charts of workers share: how workers are named, what colour and shape mean, and a row of dots for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from harness.analysis.worker_costs import HOW
from harness.axes import AXES
from harness.charts import _storage as shared
from harness.charts import _words as words
from harness.charts._figure import Key, Row
from harness.charts._theme import colour

TONES = {
    "no workers": colour("name-6"),
    "fork": colour("name-0"),
    "forkserver": colour("name-2"),
    "spawn": colour("name-1"),
    "threads": colour("name-4"),
}
"""How workers begin, to its colour."""
MARKS = {"no workers": "cross", "fork": "circle", "forkserver": "triangle-up", "spawn": "diamond", "threads": "square"}
_ROOM = 4.0
"""How far a logarithmic axis goes beyond the outermost value; intervals that are longer are cut there."""
_SAID = ("workload", "storage_format", "patch_size", "batch_size")
_UNSAID = ("mode", "n_samples", "prefetch_factor", *_SAID, *HOW)
"""Axes that every cell of a table shares, or that have a place of their own."""


def begin(cell: Mapping[Any, Any]) -> str:
    """Name how a cell's workers begin: a key of ``TONES``."""
    if not int(cell["num_workers"]):
        return "no workers"
    return "threads" if cell["worker_kind"] == "thread" else str(cell["start_method"])


def who(cell: Mapping[Any, Any]) -> str:
    """Name a cell's workers: ``2 workers, fork``, ``8 threads``, ``no workers``."""
    how, count = begin(cell), int(cell["num_workers"])
    if how == "no workers":
        return how
    return words.plural(count, "thread") if how == "threads" else f"{words.plural(count, 'worker')}, {how}"


def what(cell: Mapping[Any, Any], leave_out: Sequence[str] = ()) -> str:
    """Name what was loaded: workload, format, size, batch, and every other axis that is not at its default.

    Args:
        cell: a value for every axis; null where it does not apply.
        leave_out: axes that are named elsewhere.
    """
    more = [
        f"{axis.name} {axis.type(cell[axis.name])}".lower()
        for axis in AXES
        if axis.name not in (*_UNSAID, *leave_out) and not pd.isna(cell[axis.name]) and cell[axis.name] != axis.default
    ]
    return ", ".join([str(cell["workload"]), *told(cell), *more])


def told(cell: Mapping[Any, Any]) -> list[str]:
    """Name format, size and batch."""
    return [str(cell["storage_format"]), f"{cell['patch_size']} px", f"batch {cell['batch_size']}"]


def keys(rows: Iterable[Row]) -> list[Key]:
    """The legend: how workers begin."""
    seen = {row["begin"] for row in rows}
    return [Key(name, TONES[name], MARKS[name]) for name in TONES if name in seen]


def dots(rows: Sequence[Row], title: str, *, log: bool) -> list[alt.Chart]:
    """Draw a mark a row with its interval, in the rows' order.

    Args:
        rows: with ``label``, ``begin``, ``value``, ``lo``, ``hi`` and ``n``.
        title: of the axis of values, with its unit.
        log: whether values, all positive then, stand on a logarithmic axis; else on one that holds 0.
    """
    values = [row["value"] for row in rows]
    low, high = (min(values) / _ROOM, max(values) * _ROOM) if log else (-math.inf, math.inf)
    cut = [
        {**row, "from": None if row["lo"] is None else max(low, row["lo"]), "to": row["hi"] and min(high, row["hi"])}
        for row in rows
    ]
    x: dict[str, Any] = (
        shared.logarithmic([{"value": row["value"], "lo": row["from"], "hi": row["to"]} for row in cut], title)
        if log
        else {"title": title, "scale": alt.Scale(zero=True, nice=5), "axis": alt.Axis(tickCount=5, domain=False)}
    )
    order = [row["label"] for row in rows]
    base = alt.Chart(shared.data(cut, "label", "begin", "value", "lo", "hi", "from", "to", "n")).encode(
        y=alt.Y("label:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False, grid=False)),
        color=alt.Color("begin:N", title=None, scale=alt.Scale(domain=list(TONES), range=list(TONES.values()))),
    )
    marks = alt.Scale(domain=list(MARKS), range=list(MARKS.values()))
    tooltip = [
        alt.Tooltip("label:N", title="workers"),
        alt.Tooltip("value:Q", title=title, format=",.4~g"),
        alt.Tooltip("lo:Q", title="low", format=",.4~g"),
        alt.Tooltip("hi:Q", title="high", format=",.4~g"),
        alt.Tooltip("n:Q", title="blocks"),
    ]
    return [
        base.transform_filter("isValid(datum.from) && isValid(datum.to)")
        .mark_rule(strokeWidth=3, opacity=0.45)
        .encode(x=alt.X("from:Q", **x), x2=alt.X2("to:Q")),
        base.mark_point(filled=True, size=62, opacity=1).encode(
            x=alt.X("value:Q", **x), shape=alt.Shape("begin:N", title=None, scale=marks), tooltip=tooltip
        ),
    ]
