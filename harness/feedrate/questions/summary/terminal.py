"""The end of a sweep on the terminal: best settings, what bounds them, what they gain, files, what is next."""

from __future__ import annotations

import math
import re

import pandas as pd
from rich.console import Console

from feedrate.analysis.ceilings import cells_with_ceilings
from feedrate.analysis.estimate import Estimate
from feedrate.analysis.estimates import cells, rows_of
from feedrate.analysis.noise import CRITERIA, grade
from feedrate.pages import descriptions
from feedrate.pages.tasks import gain_words, headlines, of_machines, set_words, task_words
from feedrate.plan.search import GRID_BLOCKS
from feedrate.plan.suite import CALIBRATION
from feedrate.plan.tuning import sentences
from feedrate.questions.calibration import terminal as calibration_terminal
from feedrate.questions.claims import terminal as claims_terminal
from feedrate.schema import words
from feedrate.store.runs import StoredRun

_STOPPED = {
    "target": "every question is answered as well as wanted",
    "budget": "the budget is used",
    "blocks": "the protocol's repetitions are done",
    "interrupted": "interrupted",
}


def show(run: StoredRun, console: Console) -> None:
    """Print what a run found."""
    trials = run.table("trials")
    _quality(run, trials, console)
    if (trials["outcome"] == "ok").any():
        _say(console, words.INTERVALS)
        if run.manifest.tuned and not run.manifest.search:
            _tuned(run, trials, console)
            _next(run, console)
            return
        _tasks(trials, console)
        calibration_terminal.show(trials[trials["suite"].eq(CALIBRATION)], console)
        claims_terminal.show_run(run, console)
    _next(run, console)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _quality(run: StoredRun, trials: pd.DataFrame, console: Console) -> None:
    """How the run ended, how quiet the machine was, and what failed."""
    manifest = run.manifest
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(manifest.outcomes.items()))
    _say(
        console,
        f"\nRun {manifest.run_id}: {words.plural(manifest.cells, 'setting')}, "
        f"{words.plural(manifest.blocks, 'whole repetition')}, measurements: {outcomes} "
        f"({_STOPPED[manifest.stop_reason]}).",
        "bold",
    )
    for line in manifest.substitutions:
        _say(console, f"Note: {line}.")
    graded = grade(trials, manifest.control)
    _say(console, f"Grade {graded.letter} (A best, D worst; the worst of {len(CRITERIA)} criteria decides)", "bold")
    for sentence in graded.reasons:
        _say(console, f"  {sentence}")
    failed = trials[trials["outcome"] != "ok"]
    for (outcome, kind, message), rows in failed.groupby(["outcome", "error_kind", "error_message"], dropna=False):
        _say(console, f"  {len(rows)} × {outcome}: {kind}: {message}", "yellow")


def _tasks(trials: pd.DataFrame, console: Console) -> None:
    """Per task: the best cell, what holds it back, how many are as good, what loader knobs gain over the defaults."""
    asked = cells_with_ceilings(trials)
    for row in rows_of(headlines(trials, of_machines(asked))):
        reached = (
            f", reaches {row['efficiency']:.0%} of its smallest limit" if words.is_number(row["efficiency"]) else ""
        )
        bound = f"; {row['bound']}{reached}" if row["mode"] == "train" else ""
        gain = ", ".join(filter(None, gain_words(row["gain"])))
        _say(console, f"\n{task_words(row)}", "bold")
        best = Estimate.of_row(row).with_n(" samples/s")
        _say(console, f"  best: {descriptions.knobs(row)}: {best}{bound}")
        if others := set_words(row):
            _say(console, f"  {others}")
        _say(console, f"  best speed-up over PyTorch's defaults, without repacking: {gain}")


def _tuned(run: StoredRun, trials: pd.DataFrame, console: Console) -> None:
    """Per task of a tuned sweep: the recommended setting, how far from the best it can be, trials against the grid."""
    rows = {row["cell_id"]: row for row in rows_of(cells(trials))}
    for tuned in run.manifest.tuned:
        row = rows[tuned.recommended]
        reached = Estimate.of_row(row).with_n(" samples/s")
        _say(console, f"\n{task_words(row)}", "bold")
        _say(console, f"  recommended: {descriptions.knobs(row)}: {reached}")
        for sentence in sentences(tuned):
            _say(console, f"  {sentence}")
        grid = f"a grid of {tuned.settings} settings × {GRID_BLOCKS} repetitions takes {tuned.settings * GRID_BLOCKS}"
        _say(console, f"  {words.plural(tuned.trials, 'measurement')}; {grid}")
        for counted in tuned.aside:
            _say(console, f"  not measured: {words.plural(counted.count, 'setting')}: {counted.reason}")


def _next(run: StoredRun, console: Console) -> None:
    parent = run.manifest.parent_cpu_pct
    _say(
        console,
        f"Files: {run.folder}/ (trials.parquet holds the whole result). The harness itself used "
        f"{words.per_cent(parent, 1)} of one core.",
    )
    if run.manifest.stop_reason == "interrupted":
        _say(console, "What had ended is written; make sweep begins a new run.")
    same = re.sub(r" (?:--budget |BUDGET=)\S+", "", run.manifest.command)
    budget = run.manifest.budget_s
    longer = f" Tighter intervals: {same} --budget {words.typed(60 * math.ceil(budget / 15))}." if budget else ""
    _say(console, f"Next: make site builds the charts into build/site, make serve shows them.{longer}")
