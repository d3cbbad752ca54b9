"""The page "Are my nodes alike?" of the newest sweep of nodes each by itself, which are called by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import ENDS, Figure, Panel, Row, Sheet, listed
from feedrate.charts.plot import Plot, Side, band, keys, names
from feedrate.charts.theme import colour
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView, place
from feedrate.pages.template import render
from feedrate.questions.nodes import sentences
from feedrate.questions.nodes.analysis import ALL, NodeFindings, find
from feedrate.questions.nodes.sweep import newest, origin, shared
from feedrate.schema import words
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER

PATH = "nodes.md"
TITLE = "Are my nodes alike?"


def page(every: Sequence[RunView]) -> Page | None:
    """Write the page from the newest sweep among all runs; None where no cluster swept."""
    if not (found := newest(every, together=False)):
        return None
    sweep, node_views = found
    judged = find(sweep.trials())
    figure = place(draw(judged), "nodes", PATH, origin(list(node_views.values()), len(judged.nodes)))
    body = render(
        "nodes/page.md",
        title=TITLE,
        answer=sentences.answer(judged),
        variation=sentences.variation(judged),
        absent=sentences.absent(judged, node_views),
        reasons=list(sentences.reasons(judged)),
        **shared(sweep, node_views, PATH),
    )
    return Page(PATH, TITLE, body, {figure.name: figure})


MOST = 32
"""Nodes that are drawn: those farthest off in all cells, and all that are outlying."""
LOOKS = {"not outlying": (colour("accent"), "circle"), "outlying": (colour("source"), "diamond")}
_COLUMNS = {"part": "part", "node": "who", "against the others (%)": "value", **ENDS, "outlying": "outlying"}


def draw(findings: NodeFindings) -> Figure:
    """Draw a panel for all cells and one for each stage; of nothing that can be compared, say so."""
    sheet = Sheet("Each node against the others", "Which node is slow, in which stage, and by how much?")
    shown = _shown(findings.judged)
    order = [sentences.numbered(node) for node in shown]
    rows = [_drawn(row) for row in rows_of(findings.judged)]
    drawn = [row for row in rows if row["who"] in order]
    ends = [100 * (REFUTED_UNDER - 1), 100 * (CONFIRMED_OVER - 1), *(row[end] for row in drawn for end in ("lo", "hi"))]
    for stage in dict.fromkeys(row["part"] for row in rows):
        panel = _panel(stage, [row for row in drawn if row["part"] == stage], order, [min(ends), max(ends)])
        sheet.add(panel, listed((row for row in rows if row["part"] == stage), {}, _COLUMNS))
    sheet.note(
        "The slowest node in all settings stands on top. Intervals hold for all nodes and panels at once, in "
        "95\u00a0% of sweeps. A node is outlying where its interval lies beyond ±1\u00a0%, which is shaded."
    )
    if len(shown) < len(findings.nodes):
        sheet.note(f"Of {len(findings.nodes)} nodes {len(shown)} are drawn, those farthest off; the table has all.")
    return sheet.figure(keys(LOOKS), "No setting ended well on all nodes.")


def _shown(judged: pd.DataFrame) -> list[int]:
    """Numbers of the nodes that are drawn, the slowest first."""
    every = judged[judged["part"].eq(ALL)].sort_values("ratio")
    far = every.loc[(every["ratio"] - 1).abs().sort_values(ascending=False, kind="stable").index[:MOST], "node"]
    off = judged.loc[judged["outlying"].astype(bool), "node"]
    return [int(node) for node in every["node"] if node in {*far, *off}]


def _drawn(row: Row) -> dict[str, Any]:
    ends = {key: 100 * (row[name] - 1) for key, name in (("value", "ratio"), ("lo", "lo"), ("hi", "hi"))}
    named = {"part": sentences.titled(row["part"]), "who": sentences.numbered(row["node"])}
    return {**row, **ends, **named, "state": "outlying" if row["outlying"] else "not outlying"}


def _panel(title: str, rows: Sequence[Row], order: Sequence[str], domain: list[float]) -> Panel:
    """Draw a part; all panels have one scale."""
    axis = {"format": "+~g", "domain": False, "tickCount": 6}
    x = Side("value", "throughput against the other nodes, %", {"domain": domain}, axis)
    behind = [band(x, "x", (100 * (REFUTED_UNDER - 1), 100 * (CONFIRMED_OVER - 1)))]
    plot = Plot(rows=rows, x=x, y=names("who", order), by="state", looks=LOOKS, behind=behind)
    return plot.panel(title, words.plural(rows[0]["cells"], "setting"), _message(title, rows))


def _message(title: str, rows: Sequence[Row]) -> str:
    """The slowest and the fastest node of a panel, and those that are outlying."""
    ordered = sorted(rows, key=lambda row: row["value"])
    slowest, fastest = (
        f"{row['who']}, {words.estimate((row['value'], row['lo'], row['hi']), 'change')}"
        for row in (ordered[0], ordered[-1])
    )
    off = words.listed(row["who"] for row in rows if row["outlying"]) or "none"
    return words.sentence(f"{title}: the slowest is {slowest}, the fastest {fastest}; outlying: {off}")
