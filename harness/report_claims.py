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

from harness import store, store_beside, suite
from harness.analysis.claim_words import estimate, needed, sentence
from harness.analysis.claimed import NOT_TESTABLE, VERDICTS
from harness.analysis.claimed_runs import Answered, Measured, answered
from harness.analysis.rows import rows_of
from harness.claim import Claims
from harness.errors import InputError, expected_one_of
from harness.store import StoredRun

COLOURS = {"confirmed": "green", "refuted": "red", "no difference": "blue", "inconclusive": "yellow"}
BAR_WIDTH = 15
BAR_REACH = 4.0
"""A bar ends at this ratio and at its inverse; what lies beyond gets an arrow."""
Row = Mapping[Any, Any]


def show(answers: Answered, claims: Claims, console: Console, *, whole: bool = False) -> None:
    """Print what runs say of claims, machine by machine.

    Args:
        answers: verdicts of any number of machines.
        claims: id to suite and claim.
        console: where it goes.
        whole: a sentence for every claim too.
    """
    for (machine, device), rows in answers.found.claims.groupby(["machine_id", "device"], sort=False):
        records = rows_of(rows)
        tested = [row for row in records if row["verdict"] != NOT_TESTABLE]
        counts = rows["verdict"].value_counts()
        said = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if word in counts)
        _say(console, f"\nClaims of the sources on {machine}, {str(device).upper()}: {said}", "bold")
        if tested:
            console.print(_table(tested))
            _say(
                console,
                f"  Bars: B ÷ A from {1 / BAR_REACH:g} to {BAR_REACH:g}, one in the middle, with 95 % intervals.",
            )
        if whole:
            _sentences(answers, tested, claims, console)
        _open(tested, console)
        _rest(records, console)
    for run_id in answers.left_out:
        _say(console, f"Run {run_id} is left out: another version of the protocol measured it; repeat it to compare.")


def of_run(run: StoredRun, console: Console) -> None:
    """Print what one run found of the claims that it asked about.

    Args:
        run: as stored.
        console: where it goes.
    """
    asked = {one.claim for one in run.manifest.claims} | set(run.manifest.untestable)
    claims = {name: found for name, found in suite.claims().items() if name in asked}
    if claims:
        show(answered([_measured(run, claims)], claims), claims, console)


def of_results(results: Path, console: Console, machines: Sequence[str] = (), *, whole: bool = False) -> None:
    """Print what all stored runs say of all claims.

    Args:
        results: where runs lie.
        console: where it goes.
        machines: some machines only.
        whole: a sentence for every claim too.

    Raises:
        InputError: no run, or none of such a machine.
    """
    standing = store_beside.standing(store.runs(results))
    runs = sorted(standing, key=lambda run: (run.manifest.started_at, run.manifest.run_id), reverse=True)
    known = {run.manifest.machine.machine_id for run in runs}
    if not runs:
        raise InputError(f"{results}: holds no run; make sweep SUITE=claims makes one")
    for machine in machines:
        if machine not in known:
            raise InputError(f"claims: unknown machine '{machine}'; {expected_one_of(machine, known)}")
    claims = suite.claims()
    wanted = [run for run in runs if not machines or run.manifest.machine.machine_id in machines]
    show(answered((_measured(run, claims) for run in wanted), claims), claims, console, whole=whole)


def _measured(run: StoredRun, claims: Claims) -> Measured:
    return Measured.of(run.manifest, run.table("trials"), claims)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _table(rows: Sequence[Row]) -> Table:
    """The claims that were tested, by verdict."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("claim", "effect (95 %)", "B ÷ A", "verdict"):
        table.add_column(name, no_wrap=True, min_width=max(map(len, COLOURS)) if name == "verdict" else None)
    for row in sorted(rows, key=lambda row: VERDICTS.index(row["verdict"])):
        style = COLOURS[row["verdict"]]
        known = not pd.isna(row["ratio"])
        told = estimate(row) if known else "a fact" if not pd.isna(row["fact_value"]) else "–"
        drawn = bar(row["ratio"], row["lo"], row["hi"]) if known else ""
        table.add_row(Text(row["claim"]), Text(told), Text(drawn, style), Text(row["verdict"], style))
    return table


def bar(ratio: float, lo: float, hi: float, reach: float = BAR_REACH) -> str:
    """Draw an effect on a log scale: ``●`` the estimate, ``─`` its interval, ``│`` no effect.

    Args:
        ratio: B ÷ A.
        lo: lower end of its interval; NaN where there is none.
        hi: upper end.
        reach: the ratio at which the bar ends; at its inverse on the other side.
    """
    middle = BAR_WIDTH // 2

    def place(value: float) -> int:
        share = math.log(value) / math.log(reach)
        return round(middle + max(-1.0, min(1.0, share)) * middle)

    cells = [" "] * BAR_WIDTH
    cells[middle] = "│"
    if math.isfinite(lo) and lo > 0:
        for at in range(place(lo), place(hi) + 1):
            cells[at] = "─"
    cells[place(ratio)] = "●"
    if ratio > reach:
        cells[-1] = "▶"
    elif ratio < 1 / reach:
        cells[0] = "◀"
    return "".join(cells)


def _sentences(answers: Answered, rows: Sequence[Row], claims: Claims, console: Console) -> None:
    cases = answers.found.cases
    for row in rows:
        mine = rows_of(cases[cases["claim"].eq(row["claim"]) & cases["run_id"].eq(row["run_id"])])
        claim = claims[row["claim"]][1].on(row["device"])
        _say(console, f"\n{claim.id}: {claim.says}", "bold")
        _say(console, f"  {sentence(row, mine, claim)}")


def _open(rows: Sequence[Row], console: Console) -> None:
    """What it would take to decide the rest."""
    for row in [row for row in rows if row["verdict"] == "inconclusive" and not pd.isna(row["ratio"])]:
        _say(console, f"  {row['claim']}: {needed(row)} (had {row['n']:.0f}).", "dim")


def _rest(rows: Sequence[Row], console: Console) -> None:
    """Claims that cannot be tested here, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["verdict"] == NOT_TESTABLE:
            reasons.setdefault(str(row["reason"]), []).append(str(row["claim"]))
    for reason, names in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        _say(console, f"  Not testable here ({reason}): {', '.join(names)}", "dim")
