"""The nodes of a cluster's sweep held against each other, on the terminal, where they have their names."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from feedrate.analysis.estimates import rows_of
from feedrate.pages import report
from feedrate.pages.report import Section
from feedrate.questions.nodes import sentences
from feedrate.questions.nodes.analysis import ALL, find
from feedrate.questions.nodes.sweep import Sweep, names
from feedrate.schema import words


def show(sweep: Sweep, results: Path, console: Console) -> None:
    """Print what a sweep that lies under ``results`` says of its nodes."""
    called = names(sweep, results)

    def naming(node: int) -> str:
        return f"{sentences.numbered(node)} ({called[node]})" if node in called else sentences.numbered(node)

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
