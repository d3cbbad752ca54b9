"""The page "Are my nodes alike?" of the newest sweep of nodes each by itself, and the same on the terminal.

The page calls nodes by their numbers; the terminal, where they have their names, by these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from feedrate.analysis.estimate import RATIO, Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import ENDS, Figure, Panel, Row, Sheet, listed
from feedrate.charts.plot import Plot, Side, band, keys, names
from feedrate.charts.theme import colour
from feedrate.pages import report
from feedrate.pages.markup import Page
from feedrate.pages.report import Section
from feedrate.pages.runs import RunView
from feedrate.questions.nodes.analysis import ALL, LEAST_NODES, STAMPED, NodeFindings, Spread, find
from feedrate.questions.nodes.sweep import Sweep, newest
from feedrate.questions.nodes.sweep import page as sweep_page
from feedrate.schema import words
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER
from feedrate.store import clusters

Naming = Callable[[int], str]
PARTS = {
    ALL: "all settings",
    "load": "loading alone",
    "copy": "copying alone",
    "compute": "the model’s step alone",
    "disk": "reading, page cache cold",
    "cached": "reading, page cache warm",
    "decode": "decoding",
    "transform": "transforming",
    "collate": "collating",
}
"""Part to what it is called."""
PATH = "nodes.md"
TITLE = "Are my nodes alike?"


def page(every: Sequence[RunView]) -> Page | None:
    """Write the page from the newest sweep among all runs; None where no cluster swept."""
    if not (found := newest(every, together=False)):
        return None
    sweep, node_views = found
    judged = find(sweep.trials())
    text = {
        "answer": answer(judged),
        "variation": variation(judged),
        "absent": absent(judged, node_views),
        "reasons": list(reasons(judged)),
    }
    return sweep_page(PATH, TITLE, sweep, node_views, draw(judged), len(judged.nodes), **text)


def show(sweep: Sweep, results: Path, console: Console) -> None:
    """Print what a sweep that lies under ``results`` says of its nodes."""
    called = clusters.names(results)  # only the results that the nodes swept into know them

    def naming(node: int) -> str:
        name = called.get(sweep.runs[node].manifest.machine.machine_id)
        return f"{numbered(node)} ({name})" if name else numbered(node)

    findings = find(sweep.trials())
    lines = [
        answer(findings, naming),
        absent(findings, sorted(sweep.runs), naming),
        variation(findings),
        f"{words.INTERVALS} Those of nodes hold for all nodes and stages at once.",
    ]
    sections = [Section(f"Sweep {sweep.name}, {sweep.size}: are they alike?", list(filter(None, lines)))]
    if off := list(reasons(findings, naming)):
        sections.append(Section("Where they are off", items=off))
    every = rows_of(findings.judged[findings.judged["part"].eq(ALL)].sort_values("ratio"))
    if rows := [(naming(row["node"]), distance(row), f"{row['n']}") for row in every]:
        titles = ("node", "throughput", "repetitions")
        sections.append(Section("Each node against the others, in all settings", (), titles, rows))
    report.show(sections, console)


def percent(share: float) -> str:
    """Write a small share as per cent, with a decimal: ``5.1 %``."""
    return words.per_cent(100 * share, 1)


def numbered(node: int) -> str:
    """Call a node by its number, as all that is published does."""
    return f"node {node}"


def distance(row: Mapping[str, Any]) -> str:
    """Write how far a node is off: ``5.1 % slower (3.9–6.2 %)``."""
    size, word = Estimate.of_row(row, RATIO).through(lambda ratio: 100 * (ratio - 1), "change"), " faster"
    if size.value < 0:
        size, word = size.through(lambda pct: -pct, "change"), " slower"
    return size.text(word, write=partial(words.per_cent, places=1))


def answer(nodes: NodeFindings, naming: Naming = numbered) -> str:
    """Answer in a sentence whether the nodes are alike."""
    if len(nodes.nodes) < LEAST_NODES:
        return (
            f"{words.plural(len(nodes.nodes), 'node')} measured something, and {LEAST_NODES} are needed: of two that "
            "differ nobody can say which one is off."
        )
    if nodes.spread is None:
        return "No setting but emulated steps ended well in two repetitions of every node."
    if not (off := nodes.outlying):
        return (
            f"No node stands out: none of {len(nodes.nodes)} is shown to be more than 1\u00a0% slower or faster than "
            f"the others, over {words.plural(nodes.cells, 'setting')} or in a stage alone."
        )
    who = "; ".join(f"{naming(node)} is {_off(rows_of(rows))}" for node, rows in off.items())
    return words.sentence(f"{len(off)} of {len(nodes.nodes)} nodes {'stand' if len(off) > 1 else 'stands'} out: {who}")


def _off(rows: Sequence[Mapping[str, Any]]) -> str:
    """How far a node is off in all cells, else in the first stage, and in which stages it is, too."""
    stages = words.listed(PARTS[row["part"]] for row in rows[1:])
    return f"{distance(rows[0])} in {PARTS[rows[0]['part']]}" + (f", and off in {stages}" if stages else "")


def reasons(findings: NodeFindings, naming: Naming = numbered) -> Iterator[tuple[str, list[str]]]:
    """Tell of each outlying node in which parts it is off; the workers' stamps come last."""
    of_stamps = {stage.name for stage in STAMPED}
    for node, rows in findings.outlying.items():
        lines = [f"{PARTS[row['part']]}: {distance(row)}" for row in rows_of(rows)]
        if set(rows["part"]) == {ALL}:
            lines.append("no stage by itself is shown to be the reason")
        elif "load" in set(rows["part"]) and not of_stamps & set(rows["part"]):
            lines.append("the workers’ stamps do not show which stage of loading it is")
        yield words.capital(naming(node)), [words.sentence(line) for line in lines]


def variation(nodes: NodeFindings) -> str:
    """Tell how much nodes differ, how much one differs from block to block, and what the sweep could find."""
    if nodes.spread is None:
        return ""
    rest = f", {_between(nodes.rest)} without the outlying ones" if nodes.rest else ""
    return (
        f"Throughput varies by {_between(nodes.spread)} between nodes{rest}, and by {percent(nodes.spread.within)} "
        f"from repetition to repetition within one. A node that is {percent(nodes.finds)} slower in all settings "
        "would be found in 95 of 100 such sweeps."
    )


def _between(spread: Spread) -> str:
    return words.estimate((spread.between, spread.lo, spread.hi), write=percent)


def absent(findings: NodeFindings, nodes: Iterable[int], naming: Naming = numbered) -> str:
    """Name the nodes with a run in which nothing can be compared."""
    gone = [naming(node) for node in nodes if node not in findings.nodes]
    return words.sentence(f"{words.listed(gone)} measured nothing that ended well") if gone else ""


MOST = 32
"""Nodes that are drawn: those farthest off in all cells, and all that are outlying."""
LOOKS = {"not outlying": (colour("accent"), "circle"), "outlying": (colour("source"), "diamond")}
_MARGINS = (100 * (REFUTED_UNDER - 1), 100 * (CONFIRMED_OVER - 1))
"""Within which a node may differ, in per cent."""
_COLUMNS = {"part": "part", "node": "who", "against the others (%)": "value", **ENDS, "outlying": "outlying"}


def draw(findings: NodeFindings) -> Figure:
    """Draw a panel for all cells and one for each stage that has cells; of nothing that can be compared, say so."""
    sheet = Sheet("Each node against the others", "Which node is slow, in which stage, and by how much?")
    judged = findings.judged[~findings.judged["part"].isin([stage.name for stage in STAMPED])]
    shown, rows = _shown(judged), [_drawn(row) for row in rows_of(judged)]
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
    named = {"part": words.capital(PARTS[row["part"]]), "who": numbered(row["node"])}
    return {**row, **ends, **named, "state": "outlying" if row["outlying"] else "not outlying"}


def _panel(title: str, rows: Sequence[Row], order: Sequence[int], domain: list[float]) -> Panel:
    """Draw a part; all panels have one scale."""
    axis = {"format": "+~g", "domain": False, "tickCount": 6}
    x = Side("value", "throughput against the other nodes, %", {"domain": domain}, axis)
    y = names("who", map(numbered, order))
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
