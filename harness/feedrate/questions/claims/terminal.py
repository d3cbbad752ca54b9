"""Claims on the terminal: a verdict a line with its effect as a bar, and why the rest cannot be tested here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from feedrate.analysis.claim_values import observe
from feedrate.analysis.claims import NOT_TESTABLE, VERDICTS, Findings, judge_claims
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.sentences import blocks_needed, estimate, origins, remarks, sentence, worst
from feedrate.plan import suite
from feedrate.plan.claim import Claims
from feedrate.schema import words
from feedrate.schema.errors import InputError, expected_one_of
from feedrate.store import marks
from feedrate.store import runs as store_runs
from feedrate.store.runs import StoredRun

COLOURS = {
    "confirmed": "green",
    "depends": "magenta",
    "refuted": "red",
    "no difference": "blue",
    "inconclusive": "yellow",
}
BAR_WIDTH = 15
BAR_REACH = 4.0
"""A bar ends at this ratio and at its inverse; what lies beyond gets an arrow."""
_BARS = f"  Bars: B ÷ A from {1 / BAR_REACH:g} to {BAR_REACH:g}, with 1 in the middle and 95 % intervals."
Row = Mapping[Any, Any]


def show(findings: Findings, claims: Claims, console: Console, *, whole: bool = False) -> None:
    """Print what runs say of claims, machine by machine; ``whole`` adds a sentence for every claim."""
    for (machine, device), rows in findings.claims.groupby(["machine_id", "device"], sort=False):
        tested = rows_of(rows[rows["verdict"].ne(NOT_TESTABLE)])
        counts = rows["verdict"].value_counts()
        tally = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if word in counts)
        _say(console, f"\nClaims of the sources on {machine}, {str(device).upper()}: {tally}", "bold")
        if holding := origins([claims[row["claim"]][1] for row in tested if row["verdict"] == "confirmed"]):
            _say(console, f"  {holding}", "dim")
        if tested:
            console.print(_table(tested))
            _say(console, _BARS)
        if whole:
            _sentences(findings, tested, claims, console)
        for row in tested:
            if note := _note(row):
                _say(console, f"  {row['claim']}{note}.", "dim")
        for remark, names in _remarks(tested).items():
            _say(console, f"  {words.sentence(remark)[:-1]}: {', '.join(names)}", "dim")
        untested = rows[rows["verdict"].eq(NOT_TESTABLE)].groupby("reason", sort=False)["claim"].agg(list)
        for reason, names in sorted(untested.items(), key=lambda pair: -len(pair[1])):
            _say(console, f"  Not testable here ({reason}): {', '.join(names)}", "dim")


def show_run(run: StoredRun, console: Console) -> None:
    """Print what one run found of the claims that it asked about."""
    asked = {one.claim for one in run.manifest.claims} | set(run.manifest.untestable)
    claims = {name: claim for name, claim in suite.claims().items() if name in asked}
    if claims and len(trials := run.table("trials")):
        show(judge_claims([observe(trials, claims, run.manifest.untestable)], claims), claims, console)


def show_results(results: Path, console: Console, machines: Sequence[str] = (), *, whole: bool = False) -> None:
    """Print what all stored runs, or those of some machines, say of all claims.

    Raises:
        InputError: there is no run, or no such machine.
    """
    every = store_runs.runs(results)
    left = marks.not_withdrawn(every)
    gone = [run.manifest for run in every if run not in left]
    runs = sorted(left, key=lambda run: (run.manifest.started_at, run.manifest.run_id), reverse=True)
    machine_ids = {run.manifest.machine.machine_id for run in runs}
    if not runs:
        raise InputError(f"{results}: holds no run; make sweep SUITE=claims makes one")
    for machine in machines:
        if machine not in machine_ids:
            raise InputError(f"claims: unknown machine '{machine}'; {expected_one_of(machine, machine_ids)}")
    claims = suite.claims()
    wanted = [run for run in runs if not machines or run.manifest.machine.machine_id in machines]
    read = ((run, run.table("trials")) for run in wanted)
    seen = (observe(trials, claims, run.manifest.untestable) for run, trials in read if len(trials))
    show(judge_claims(seen, claims, gone), claims, console, whole=whole)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _remarks(rows: Sequence[Row]) -> dict[str, list[str]]:
    """What is to be known of the runs behind verdicts, each with the claims that it is of."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        for remark in remarks(row):
            texts.setdefault(remark, []).append(row["claim"])
    return texts


def _note(row: Row) -> str:
    """What a claim depends on, or why it is open."""
    if row["depends_on"]:
        return f" depends: {row['depends_on']}"
    if row["verdict"] != "inconclusive" or not words.is_number(row["ratio"]):
        return ""
    return f": {row['reason']}" if row["reason"] else f": {blocks_needed(row)} (had {row['n']:.0f})"


def _table(rows: Sequence[Row]) -> Table:
    """The claims that were tested, by verdict."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("claim", "effect (95 %)", "worst", "B ÷ A", "verdict"):
        table.add_column(name, no_wrap=True, min_width=max(map(len, COLOURS)) if name == "verdict" else None)
    for row in sorted(rows, key=lambda row: VERDICTS.index(row["verdict"])):
        style = COLOURS[row["verdict"]]
        measured = not pd.isna(row["ratio"])
        effect = estimate(row) if measured else "a fact" if not pd.isna(row["fact_value"]) else "–"
        drawn = bar(row["ratio"], row["lo"], row["hi"]) if measured else ""
        plain = map(Text, (row["claim"], effect, worst(row)))
        table.add_row(*plain, Text(drawn, style), Text(row["verdict"], style))
    return table


def bar(ratio: float, lo: float, hi: float, reach: float = BAR_REACH) -> str:
    """Draw an effect on a log scale of one ``reach`` either way: ``●`` estimate, ``─`` interval, ``│`` no effect."""
    middle = BAR_WIDTH // 2

    def position(value: float) -> int:
        share = math.log(value) / math.log(reach)
        return round(middle + max(-1.0, min(1.0, share)) * middle)

    cells = [" "] * BAR_WIDTH
    cells[middle] = "│"
    if math.isfinite(lo) and lo > 0:
        for at in range(position(lo), position(hi) + 1):
            cells[at] = "─"
    cells[position(ratio)] = "●"
    if ratio > reach:
        cells[-1] = "▶"
    elif ratio < 1 / reach:
        cells[0] = "◀"
    return "".join(cells)


def _sentences(findings: Findings, rows: Sequence[Row], claims: Claims, console: Console) -> None:
    for row in rows:
        matches = findings.cases[["claim", "machine_id", "device"]].eq(
            [row[name] for name in ("claim", "machine_id", "device")]
        )
        mine = rows_of(findings.cases[matches.all(axis=1)])
        claim = claims[row["claim"]][1].on(row["device"])
        _say(console, f"\n{claim.id}: {claim.says}", "bold")
        _say(console, f"  {words.sentence(row['verdict'])} {sentence(row, mine, claim)}")
