"""Claims on the terminal: a verdict a line with its effect, and why the rest cannot be tested here."""

from __future__ import annotations

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
        if whole:
            _sentences(findings, tested, claims, console)
        for row in tested:
            if note := _note(row):
                _say(console, f"  {row['claim']}{note}.", "dim")
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


def _note(row: Row) -> str:
    """What a claim depends on, or why it is open."""
    if row["depends_on"]:
        return f" depends: {row['depends_on']}"
    if row["verdict"] != "inconclusive" or not words.is_number(row["ratio"]):
        return ""
    return f": {row['reason'] or blocks_needed(row)}"


def _table(rows: Sequence[Row]) -> Table:
    """The claims that were tested, by verdict."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("claim", "effect (95 %)", "n", "worst", "verdict", "runs"):
        table.add_column(name, no_wrap=name != "runs")
    for row in sorted(rows, key=lambda row: VERDICTS.index(row["verdict"])):
        effect = estimate(row) if words.is_number(row["ratio"]) else "–" if pd.isna(row["fact_value"]) else "a fact"
        verdict = Text(row["verdict"], COLOURS[row["verdict"]])
        table.add_row(
            row["claim"], effect, f"{row['n']:.0f}", worst(row), verdict, Text("; ".join(remarks(row)), "dim")
        )
    return table


def _sentences(findings: Findings, rows: Sequence[Row], claims: Claims, console: Console) -> None:
    for row in rows:
        matches = findings.cases[["claim", "machine_id", "device"]].eq(
            [row[name] for name in ("claim", "machine_id", "device")]
        )
        mine = rows_of(findings.cases[matches.all(axis=1)])
        claim = claims[row["claim"]][1].on(row["device"])
        _say(console, f"\n{claim.id}: {claim.says}", "bold")
        _say(console, f"  {words.sentence(row['verdict'])} {sentence(row, mine, claim)}")
