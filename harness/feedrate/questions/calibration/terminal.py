"""Calibration on the terminal, where a sweep that plants ends: a table of its costs, and the sentences of its page."""

from __future__ import annotations

from functools import partial

import pandas as pd
from rich.console import Console
from rich.table import Table

from feedrate.analysis.estimates import rows_of
from feedrate.questions.calibration import analysis
from feedrate.schema import words

QUANTITIES = {
    "read": "waiting to read",
    "decode": "decoding",
    "collate": "collating",
    "payload": "bytes carried along",
    "step": "step",
    "batch": "whole batch",
}
"""What is planted, in words; the order is the analysis' own."""
_PRINTED = ("quantity", "step", "workers", "batch", "planted", "measured", "error (95 % interval)", "n")
"""Columns on the terminal."""


def show(trials: pd.DataFrame, console: Console) -> None:
    """Print what was planted and what was measured by the trials of one run; nothing where nothing was planted."""
    costs = analysis.planted(trials)
    if costs.empty:
        return

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False)

    say("\nPlanted costs, read back (means over repetitions; what the rest costs is taken off)", "bold")
    console.print(_printed(costs))
    for row in rows_of(analysis.summary(costs)):
        say(
            f"  {row['quantity']}: median error {words.per_cent(row['median_pct'], 2)}, worst "
            f"{words.signed(row['worst_pct'], 2)} ({words.plural(row['cells'], 'setting')}, n ≥ {row['n']})"
        )
    say(answer(costs, analysis.effects(trials), analysis.same_pairs(trials), analysis.bottlenecks(trials)))


def _printed(costs: pd.DataFrame) -> Table:
    """One line a quantity and configuration; replicas count in the lines below the table alone."""
    printed = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in _PRINTED:
        printed.add_column(name, justify="left" if name == "quantity" else "right", no_wrap=True)
    order = {name: index for index, name in enumerate(dict.fromkeys(costs["quantity"]))}
    first = costs[costs["replica"] == 0].sort_values(["num_workers", "batch_size", "planted"], kind="stable")
    for row in rows_of(first.sort_values("quantity", key=lambda names: names.map(order), kind="stable")):
        shape = f", {row['read_shape'].replace('_', '-')}" if row["quantity"] == "read" else ""
        unit = row["unit"].partition(" ")[0].replace("bytes", "B")
        ends = row["error_pct"], row["error_lo"], row["error_hi"]
        printed.add_row(
            f"{row['quantity']}{shape}",
            "–" if row["mode"] == "load" else f"{row['step_ms']:g} ms",
            str(row["num_workers"]),
            str(row["batch_size"]),
            f"{row['planted']:,.5g} {unit}",
            f"{row['measured']:,.5g}",
            words.estimate(ends, write=partial(words.signed, places=2)),
            str(row["n"]),
        )
    return printed


def answer(costs: pd.DataFrame, effects: pd.DataFrame, pairs: pd.DataFrame, bound: pd.DataFrame) -> str:
    """Answer the question of calibration in sentences made from the numbers; its page has them, too."""

    def are(count: int, one: str = "is", many: str = "are") -> str:
        return f"{count} {one if count == 1 else many}"

    worst = rows_of(costs)[int(costs["error_pct"].abs().to_numpy().argmax())]
    parts = [
        f"Of {words.plural(len(costs), 'planted cost')}, half are read back within "
        f"{words.per_cent(costs['error_pct'].abs().median())}; the worst ({QUANTITIES[worst['quantity']]}) is off by "
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
