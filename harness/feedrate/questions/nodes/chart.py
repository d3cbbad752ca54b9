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
from feedrate.questions.nodes.sentences import numbered, signed, titled
from feedrate.schema import words
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER

MOST = 32
"""Nodes that are drawn: those farthest off in all cells, and all that are outlying."""
LOOKS = {"not outlying": (colour("accent"), "circle"), "outlying": (colour("source"), "diamond")}
_COLUMNS = {
    "part": "part",
    "node": "who",
    "against the others (%)": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
    "outlying": "outlying",
}


def draw(found: Found) -> Figure:
    """Draw a panel for all cells and one for each stage; of nothing that can be compared, say so."""
    sheet = Sheet("Each node against the others", "Which node is slow, in which stage, and by how much?")
    shown = _shown(found.judged)
    order = [numbered(node) for node in shown]
    rows = [_drawn(row) for row in rows_of(found.judged)]
    drawn = [row for row in rows if row["who"] in order]
    ends = [100 * (REFUTED_UNDER - 1), 100 * (CONFIRMED_OVER - 1), *(row[end] for row in drawn for end in ("lo", "hi"))]
    for part in dict.fromkeys(row["part"] for row in rows):
        panel = _panel(part, [row for row in drawn if row["part"] == part], order, [min(ends), max(ends)])
        sheet.add(panel, listed((row for row in rows if row["part"] == part), {}, _COLUMNS))
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
    state = "outlying" if row["outlying"] else "not outlying"
    return {**row, **ends, "part": titled(row["part"]), "who": numbered(row["node"]), "state": state}


def _panel(title: str, rows: Sequence[Row], order: Sequence[str], domain: list[float]) -> Panel:
    """Draw a part; all panels have one scale."""
    x: dict[str, Any] = {
        "title": "throughput against the other nodes, %",
        "axis": alt.Axis(format="+~g", domain=False, tickCount=6),
        "scale": alt.Scale(domain=domain),
    }
    tone, shape = look("state", LOOKS, {row["state"] for row in rows})
    base = alt.Chart(data(rows, "who", "state", "value", "lo", "hi", "n"))
    base = base.encode(y=names("who", order), color=tone)
    margin = table([{"from": 100 * (REFUTED_UNDER - 1), "to": 100 * (CONFIRMED_OVER - 1)}])
    band = alt.Chart(margin).mark_rect(opacity=0.18, color=colour("accent"))
    tooltip = hover({"who:N": "", **rate("against the others, %"), **BLOCKS})
    layers = [
        band.encode(x=alt.X("from:Q", **x), x2=alt.X2("to:Q")),
        *dots(base, x, shape, tooltip),
    ]
    subtitle = words.plural(rows[0]["cells"], "cell")
    return Panel.draw(title, subtitle, _message(title, rows), layers, height(len(rows)))


def _message(title: str, rows: Sequence[Row]) -> str:
    """The slowest and the fastest node of a panel, and those that are outlying."""
    ordered = sorted(rows, key=lambda row: row["value"])
    slowest, fastest = (
        f"{row['who']} ({signed(row['value'])}\u00a0%, {signed(row['lo'])} to {signed(row['hi'])})"
        for row in (ordered[0], ordered[-1])
    )
    off = words.listed(row["who"] for row in rows if row["outlying"]) or "none"
    return words.sentence(f"{title}: the slowest is {slowest}, the fastest {fastest}; outlying: {off}")
