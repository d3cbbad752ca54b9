"""How far estimators of throughput are off against an external clock, on the same steps: median and range of errors.

It is drawn from bench records and not from a run's cells, so it is no chart that a suite could name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.estimators import ESTIMATORS, OURS
from feedrate.charts.figure import Figure, Key, Panel, Row, table
from feedrate.charts.theme import colour
from feedrate.schema import words

TITLE = "Error of each estimator"
QUESTION = "How far is each way of stating throughput from an external clock?"
LABELS = {estimator.name: estimator.label for estimator in ESTIMATORS}
_COLUMNS = {
    "label": "estimator",
    "median": "median error (%)",
    "worst": "worst error (%)",
    "low": "lowest (%)",
    "high": "highest (%)",
    "n": "trials",
    "cells": "cells",
}
"""Of the figure's table."""
_TICKS = [-100, -10, -1, 1, 10, 100, 1000, 10_000, 100_000]
_TICK_LABEL = "abs(datum.value) < 1000 ? format(datum.value, 'd') : format(datum.value / 1000, 'd') + 'k'"
_ROOM = 1.6
"""How far the scale goes beyond the largest errors, so that marks stay clear of the labels."""
_KEYS = (
    Key("feedrate", colour("accent")),
    Key("other ways of timing the same steps", colour("source")),
    Key("median of all trials", colour("ink"), "circle"),
    Key("worst trial", colour("ink"), "diamond"),
)


def signed(error_pct: float) -> str:
    """Write an error: ``+0.023 %``, ``−39.9 %``."""
    return f"{'−' if error_pct < 0 else '+'}{size(error_pct)}"


def size(error_pct: float) -> str:
    """Write how large an error is, whatever its sign: ``0.023 %``, ``39.9 %``."""
    return f"{words.number(abs(error_pct), 3 if abs(error_pct) >= 1 else 2)}\u00a0%"


def draw(summary: pd.DataFrame) -> Figure:
    """Draw the errors of all estimators."""
    names = summary.columns.str.removesuffix("_pct").str.replace("estimator", "name")
    rows = rows_of(
        summary.set_axis(names, axis="columns").assign(
            label=summary["estimator"].map(LABELS),
            whose=summary["estimator"].map(lambda name: "feedrate" if name == OURS else "others"),
        )
    )
    n, cells = max(row["n"] for row in rows), max(row["cells"] for row in rows)
    subtitle = f"{n} trials of {cells} planted cells"
    panel = Panel.draw(TITLE, subtitle, _message(rows), _layers(rows), 80 + 26 * len(rows))
    shown = [{title: row[name] for name, title in _COLUMNS.items()} for row in rows]
    notes = (
        "The scale is linear within ±1 %, which is shaded, and logarithmic beyond.",
        "Lines go from the lowest to the highest error of any trial.",
    )
    return Figure(TITLE, QUESTION, (panel,), _KEYS, tuple(shown), notes)


def _layers(rows: Sequence[Row]) -> list[alt.Chart]:
    ends = [_ROOM * value for row in rows for value in (row["low"], row["high"])]
    domain = [min(-2.0, *ends), max(2.0, *ends)]
    scale = alt.Scale(type="symlog", constant=1, domain=domain, nice=False)
    ticks = [tick for tick in _TICKS if domain[0] <= tick <= domain[1]]
    x_axis = alt.Axis(values=ticks, labelExpr=_TICK_LABEL, grid=True, domain=False)
    x: dict[str, Any] = {"title": "error against the external clock, %", "scale": scale, "axis": x_axis}
    tone = alt.Color(
        "whose:N",
        title=None,
        scale=alt.Scale(domain=["feedrate", "others"], range=[key.colour for key in _KEYS[:2]]),
    )
    y = alt.Y("label:N", sort=[row["label"] for row in rows], title=None, axis=alt.Axis(ticks=False, domain=False))
    band = alt.Chart(table([{"from": -1, "to": 1}])).mark_rect(opacity=0.18, color=colour("accent"))
    base = alt.Chart(table(rows)).encode(y=y, color=tone)
    tooltip = [
        alt.Tooltip("label:N", title="estimator"),
        alt.Tooltip("median:Q", title="median error, %", format="+,.3~g"),
        alt.Tooltip("worst:Q", title="worst error, %", format="+,.3~g"),
        alt.Tooltip("n:Q", title="trials"),
    ]
    return [
        band.encode(x=alt.X("from:Q", **x), x2=alt.X2("to:Q")),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", **x), x2=alt.X2("high:Q")),
        base.mark_point(filled=True, size=70, opacity=1, shape="diamond").encode(
            x=alt.X("worst:Q", **x), tooltip=tooltip
        ),
        base.mark_point(filled=True, size=60, opacity=1, shape="circle").encode(
            x=alt.X("median:Q", **x), tooltip=tooltip
        ),
    ]


def _message(rows: Sequence[Row]) -> str:
    """Set our worst error against the smallest and the largest worst error of the others."""
    ours = next((row for row in rows if row["whose"] == "feedrate"), None)
    others = sorted((row for row in rows if row["whose"] == "others"), key=lambda row: abs(row["worst"]))
    parts = []
    if ours:
        parts.append(f"at worst feedrate is off by {signed(ours['worst'])} (n = {ours['n']})")
    if others:
        parts.append(f"the nearest other way, {others[0]['label']}, by {signed(others[0]['worst'])}")
        parts.append(f"the farthest, {others[-1]['label']}, by {signed(others[-1]['worst'])}")
    return words.sentence("; ".join(parts))
