"""The page "Are my nodes alike?" of the newest sweep of nodes each by itself, and the same on the terminal.

The page calls nodes by their numbers; the terminal, where they have their names, by these, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import ENDS, Figure, Panel, Row, Sheet, listed
from feedrate.charts.plot import Plot, Side, band, keys, names
from feedrate.charts.theme import colour
from feedrate.pages import report
from feedrate.pages.markup import Page
from feedrate.pages.report import Section
from feedrate.pages.runs import RunView
from feedrate.questions.nodes import sentences
from feedrate.questions.nodes.analysis import ALL, NodeFindings, find
from feedrate.questions.nodes.sweep import Sweep, newest
from feedrate.questions.nodes.sweep import page as sweep_page
from feedrate.schema import words
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER
from feedrate.store import clusters

PATH = "nodes.md"
TITLE = "Are my nodes alike?"


def page(every: Sequence[RunView]) -> Page | None:
    """Write the page from the newest sweep among all runs; None where no cluster swept."""
    if not (found := newest(every, together=False)):
        return None
    sweep, node_views = found
    judged = find(sweep.trials())
    text = {
        "answer": sentences.answer(judged),
        "variation": sentences.variation(judged),
        "absent": sentences.absent(judged, node_views),
        "reasons": list(sentences.reasons(judged)),
    }
    return sweep_page(PATH, TITLE, sweep, node_views, draw(judged), len(judged.nodes), **text)


def show(sweep: Sweep, results: Path, console: Console) -> None:
    """Print what a sweep that lies under ``results`` says of its nodes."""
    called = clusters.names(results)  # only the results that the nodes swept into know them

    def naming(node: int) -> str:
        name = called.get(sweep.runs[node].manifest.machine.machine_id)
        return f"{sentences.numbered(node)} ({name})" if name else sentences.numbered(node)

    findings = find(sweep.trials())
    lines = [
        sentences.answer(findings, naming),
        sentences.absent(findings, sorted(sweep.runs), naming),
        sentences.variation(findings),
        f"{words.INTERVALS} Those of nodes hold for all nodes and stages at once.",
    ]
    sections = [Section(f"Sweep {sweep.name}, {sweep.size}: are they alike?", list(filter(None, lines)))]
    if off := list(sentences.reasons(findings, naming)):
        sections.append(Section("Where they are off", items=off))
    every = rows_of(findings.judged[findings.judged["part"].eq(ALL)].sort_values("ratio"))
    if rows := [(naming(row["node"]), sentences.distance(row), f"{row['n']}") for row in every]:
        titles = ("node", "throughput", "repetitions")
        sections.append(Section("Each node against the others, in all settings", (), titles, rows))
    report.show(sections, console)


MOST = 32
"""Nodes that are drawn: those farthest off in all cells, and all that are outlying."""
LOOKS = {"not outlying": (colour("accent"), "circle"), "outlying": (colour("source"), "diamond")}
_MARGINS = (100 * (REFUTED_UNDER - 1), 100 * (CONFIRMED_OVER - 1))
"""Within which a node may differ, in per cent."""
_COLUMNS = {"part": "part", "node": "who", "against the others (%)": "value", **ENDS, "outlying": "outlying"}


def draw(findings: NodeFindings) -> Figure:
    """Draw a panel for all cells and one for each stage; of nothing that can be compared, say so."""
    sheet = Sheet("Each node against the others", "Which node is slow, in which stage, and by how much?")
    shown = _shown(findings.judged)
    rows = [_drawn(row) for row in rows_of(findings.judged)]
    drawn = [row for row in rows if row["node"] in shown]
    ends = [*_MARGINS, *(row[end] for row in drawn for end in ("lo", "hi"))]
    for stage in dict.fromkeys(row["part"] for row in rows):
        panel = _panel(stage, [row for row in drawn if row["part"] == stage], shown, [min(ends), max(ends)])
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
    far = (every["ratio"] - 1).abs().nlargest(MOST).index
    off = judged.loc[judged["outlying"].astype(bool), "node"]
    return every.loc[every.index.isin(far) | every["node"].isin(off), "node"].tolist()


def _drawn(row: Row) -> dict[str, Any]:
    ends = {key: 100 * (row[name] - 1) for key, name in (("value", "ratio"), ("lo", "lo"), ("hi", "hi"))}
    named = {"part": words.capital(sentences.PARTS[row["part"]]), "who": sentences.numbered(row["node"])}
    return {**row, **ends, **named, "state": "outlying" if row["outlying"] else "not outlying"}


def _panel(title: str, rows: Sequence[Row], order: Sequence[int], domain: list[float]) -> Panel:
    """Draw a part; all panels have one scale."""
    axis = {"format": "+~g", "domain": False, "tickCount": 6}
    x = Side("value", "throughput against the other nodes, %", {"domain": domain}, axis)
    y = names("who", map(sentences.numbered, order))
    plot = Plot(rows, x, y, "state", LOOKS, behind=[band(x, "x", _MARGINS)])
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
