"""Calibration on the terminal, where a sweep that plants ends: a line a cost, and the sentences of its page."""

from __future__ import annotations

import pandas as pd
from rich.console import Console

from feedrate.analysis.estimates import rows_of
from feedrate.pages import report
from feedrate.pages.report import Section
from feedrate.questions.calibration import analysis
from feedrate.schema import words

_NAMES = {
    "read": "reading",
    "decode": "decoding",
    "collate": "collating",
    "payload": "bytes of the payload",
    "step": "step",
    "batch": "whole batch",
}
"""Quantities within a sentence."""


def show(trials: pd.DataFrame, console: Console) -> None:
    """Print what was planted and what was measured by the trials of one run; nothing where nothing was planted."""
    costs = analysis.planted(trials)
    if costs.empty:
        return

    lines = [
        f"{row['quantity']}: median error {words.per_cent(row['median_pct'], 2)}, worst "
        f"{words.signed(row['worst_pct'], 2)} ({words.plural(row['cells'], 'setting')}, n ≥ {row['n']})"
        for row in rows_of(analysis.summary(costs))
    ]
    lines.append(answer(costs, analysis.effects(trials), analysis.same_pairs(trials), analysis.bottlenecks(trials)))
    title = "Planted costs, read back (means over repetitions; what the rest costs is taken off)"
    report.show([Section(title, lines)], console)


def answer(costs: pd.DataFrame, effects: pd.DataFrame, pairs: pd.DataFrame, bound: pd.DataFrame) -> str:
    """Answer the question of calibration in sentences made from the numbers; its page has them, too."""

    def are(count: int, one: str = "is", many: str = "are") -> str:
        return f"{count} {one if count == 1 else many}"

    worst = max(rows_of(costs), key=lambda row: abs(row["error_pct"]))
    parts = [
        f"Of {words.plural(len(costs), 'planted cost')}, half are read back within "
        f"{words.per_cent(costs['error_pct'].abs().median())}; the worst ({_NAMES[worst['quantity']]}) is off by "
        f"{words.signed(worst['error_pct'], 2)}."
    ]
    if len(effects):
        none = int(effects["planted"].eq(1).sum())
        of_none = f" ({none} of them none at all)" if none else ""
        right = are(int(effects["right"].sum()))
        parts.append(f"Of {words.plural(len(effects), 'small effect')}{of_none}, {right} judged right.")
    if len(pairs):
        apart = are(int(pairs["different"].sum()), "has", "have")
        called = are(int(pairs["verdict"].isin(analysis.DIFFERENT).sum()))
        parts.append(
            f"Of {words.plural(len(pairs), 'equal pair')}, {apart} an interval that leaves out 1 (by chance, one in "
            f"twenty has); {called} called different."
        )
    if len(bound):
        parts.append(f"Of {words.plural(len(bound), 'planted bottleneck')}, {int(bound['right'].sum())} are named.")
    return " ".join(parts)
