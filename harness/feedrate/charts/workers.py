"""How a cell's workers and what they load are named, what their colour and shape mean, and a row of dots for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.worker_costs import HOW
from feedrate.charts.figure import Key, Row, data
from feedrate.charts.marks import BLOCKS, dots, hover, logarithmic, names, rate, shape, tone
from feedrate.charts.theme import colour
from feedrate.schema import words
from feedrate.schema.axes import AXES

LOOKS = {
    "no workers": (colour("name-6"), "cross"),
    "fork": (colour("name-0"), "circle"),
    "forkserver": (colour("name-2"), "triangle-up"),
    "spawn": (colour("name-1"), "diamond"),
    "threads": (colour("name-4"), "square"),
}
"""How workers begin, to colour and shape."""
_ROOM = 4.0
"""How far a logarithmic axis goes beyond the outermost value; intervals that are longer are cut there."""
_UNNAMED = (
    *("mode", "n_samples", "prefetch_factor", "workload", "storage_format", "patch_size", "batch_size"),
    *HOW,
)
"""Axes that every cell of a table shares, or that have a place of their own."""


def begin(cell: Mapping[Any, Any]) -> str:
    """Name how a cell's workers begin: a key of ``LOOKS``."""
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
    parts = [cell["workload"], cell["storage_format"], f"{cell['patch_size']} px", f"batch {cell['batch_size']}"]
    parts += [
        f"{axis.name} {axis.type(cell[axis.name])}".lower()
        for axis in AXES
        if axis.name not in (*_UNNAMED, *leave_out) and not pd.isna(cell[axis.name]) and cell[axis.name] != axis.default
    ]
    return ", ".join(map(str, parts))


def keys(rows: Iterable[Row]) -> list[Key]:
    """Give the legend: how workers begin."""
    used = {row["begin"] for row in rows}
    return [Key(name, *LOOKS[name]) for name in LOOKS if name in used]


def rows_of_dots(rows: Sequence[Row], title: str, *, log: bool) -> list[alt.Chart]:
    """Draw a dot a row with its interval, in the rows' order.

    Args:
        rows: with ``label``, ``begin``, ``value``, ``lo``, ``hi`` and ``n``.
        title: of the axis of values, with its unit.
        log: whether values, all positive then, stand on a logarithmic axis; else on one that holds 0.
    """
    ends: list[dict[str, Any]] = [{**row, "from": row["lo"], "to": row["hi"]} for row in rows]
    x: dict[str, Any] = {"title": title, "scale": alt.Scale(zero=True, nice=5)}
    x["axis"] = alt.Axis(tickCount=5, domain=False)
    if log:
        low, high = (pick(row["value"] for row in rows) for pick in (min, max))
        for row in ends:
            row["from"] = None if row["lo"] is None else max(low / _ROOM, row["lo"])
            row["to"] = None if row["hi"] is None else min(high * _ROOM, row["hi"])
        x = logarithmic([{"value": row["value"], "lo": row["from"], "hi": row["to"]} for row in ends], title)
    base = alt.Chart(data(ends, "label", "begin", "value", "lo", "hi", "from", "to", "n")).encode(
        y=names("label", [row["label"] for row in rows], grid=False),
        color=tone("begin", {name: pair[0] for name, pair in LOOKS.items()}),
    )
    marks = shape("begin", {name: pair[1] for name, pair in LOOKS.items()})
    return dots(base, x, marks, hover({"label:N": "workers", **rate(title), **BLOCKS}), ends=("from", "to"))
