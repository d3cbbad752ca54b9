"""Each node of a cluster against the others, in all cells and in each stage alone.

It is drawn from several runs and not from one, so it is no chart that a suite could name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, data, listed, table
from feedrate.charts.marks import BLOCKS, dots, height, hover, look, names, rate
from feedrate.charts.theme import colour
from feedrate.questions.nodes.analysis import ALL, Found
from feedrate.questions.nodes.sentences import PARTS, numbered, titled
from feedrate.schema import words
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER

MOST = 32
"""Nodes that are drawn: those farthest off in all cells, and all that are outlying."""
LOOKS = {"alike": (colour("accent"), "circle"), "outlying": (colour("source"), "diamond")}
_COLUMNS = {
    "part": "part",
    "node": "who",
    "against the others (%)": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
    "outlying": "is_outlying",
}
_AXIS: dict[str, Any] = {
    "title": "throughput against the other nodes, %",
    "axis": alt.Axis(format="+~g", domain=False, tickCount=6),
    "scale": alt.Scale(zero=True),
}


def draw(found: Found) -> Figure:
    """Draw a panel for all cells and one for each stage; of nothing that can be compared, say so."""
    sheet = Sheet("Each node against the others", "Which node is slow, in which stage, and by how much?")
    shown = _shown(found.judged)
    order = [numbered(node) for node in shown]
    for part, rows in found.judged.groupby("part", sort=False):
        drawn = [_drawn(row) for row in rows_of(rows)]
        panel = _panel(str(part), [row for row in drawn if row["who"] in order], order)
        sheet.add(panel, listed(drawn, {}, _COLUMNS))
    sheet.note(
        "The slowest node in all cells stands on top. Intervals hold for all nodes and panels at once, in 95\u00a0% of "
        "sweeps. A node is outlying where its interval lies beyond ±1\u00a0%, which is shaded."
    )
    if len(shown) < len(found.nodes):
        sheet.note(f"Of {len(found.nodes)} nodes {len(shown)} are drawn, those farthest off; the table has all.")
    return sheet.figure([Key(name, *pair) for name, pair in LOOKS.items()], "No cell ended well on all nodes.")


def _shown(judged: pd.DataFrame) -> list[int]:
    """Numbers of the nodes that are drawn, the slowest first."""
    every = judged[judged["part"].eq(ALL)].sort_values("ratio")
    far = every.loc[(every["ratio"] - 1).abs().sort_values(ascending=False, kind="stable").index[:MOST], "node"]
    off = judged.loc[judged["outlying"].astype(bool), "node"]
    return [int(node) for node in every["node"] if node in {*far, *off}]


def _drawn(row: Row) -> dict[str, Any]:
    ends = {key: 100 * (row[name] - 1) for key, name in (("value", "ratio"), ("lo", "lo"), ("hi", "hi"))}
    state = "outlying" if row["outlying"] else "alike"
    part = PARTS[row["part"]]
    return {**ends, "part": part, "who": numbered(row["node"]), "n": row["n"], "state": state} | {
        "is_outlying": bool(row["outlying"]),
        "cells": row["cells"],
    }


def _panel(part: str, rows: Sequence[Row], order: Sequence[str]) -> Panel:
    tone, shape = look("state", LOOKS, {row["state"] for row in rows})
    base = alt.Chart(data(rows, "who", "state", "value", "lo", "hi", "n"))
    base = base.encode(y=names("who", order), color=tone)
    margin = table([{"from": 100 * (REFUTED_UNDER - 1), "to": 100 * (CONFIRMED_OVER - 1)}])
    band = alt.Chart(margin).mark_rect(opacity=0.18, color=colour("accent"))
    tooltip = hover({"who:N": "", **rate("against the others, %"), **BLOCKS})
    layers = [
        band.encode(x=alt.X("from:Q", **_AXIS), x2=alt.X2("to:Q")),
        *dots(base, _AXIS, shape, tooltip),
    ]
    subtitle = words.plural(rows[0]["cells"], "cell")
    return Panel.draw(titled(part), subtitle, _message(part, rows), layers, height(len(rows)))


def _message(part: str, rows: Sequence[Row]) -> str:
    """The slowest and the fastest node of a panel, and those that are outlying."""
    ordered = sorted(rows, key=lambda row: row["value"])
    ends = " and ".join(
        f"{row['who']} by {row['value']:+.1f}\u00a0% ({row['lo']:+.1f} to {row['hi']:+.1f})"
        for row in (ordered[0], ordered[-1])
    ).replace("-", "−")
    off = words.listed(row["who"] for row in rows if row["is_outlying"])
    return words.sentence(f"{PARTS[part]}: {ends} are farthest from the others; {off or 'none'} outlying")
