"""The end of a calibration sweep on the terminal: planted, measured, error; then effects, equal cells, bottlenecks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from harness.analysis.calibration import bottlenecks, effects, planted, same_pairs, summary
from harness.analysis.rows import rows_of

_DIGITS = 5
"""That are shown of a value."""


_SHORT = {"bytes": "B"}


def show(trials: pd.DataFrame, console: Console) -> None:
    """Print what was planted and what was measured; nothing where nothing was planted.

    Args:
        trials: rows of ``records.TRIALS`` of one run.
        console: where it goes.
    """
    found = planted(trials)
    if found.empty:
        return
    _say(console, "\nPlanted costs, read back (means over blocks; what the rest costs is taken off)", "bold")
    console.print(_costs(found))
    for row in rows_of(summary(found)):
        _say(
            console,
            f"  {row['quantity']}: median error {row['median_pct']:.2f} %, worst {row['worst_pct']:+.2f} % "
            f"({_count(row['cells'], 'cell')}, n ≥ {row['n']})",
        )
    for line in (_effects(effects(trials)), _pairs(same_pairs(trials)), _bottlenecks(bottlenecks(trials))):
        if line:
            _say(console, line)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _costs(found: pd.DataFrame) -> Table:
    """One line a quantity and configuration; replicas count in the lines below the table alone."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("quantity", "step", "workers", "batch", "planted", "measured", "error, %", "n"):
        table.add_column(name, justify="left" if name == "quantity" else "right", no_wrap=True)
    first = found[found["replica"] == 0].sort_values(["num_workers", "batch_size", "planted"], kind="stable")
    order = {name: place for place, name in enumerate(dict.fromkeys(found["quantity"]))}
    for row in rows_of(first.sort_values("quantity", key=lambda names: names.map(order), kind="stable")):
        table.add_row(
            _quantity(row),
            "–" if row["mode"] == "load" else f"{row['step_ms']:g} ms",
            str(row["num_workers"]),
            str(row["batch_size"]),
            f"{row['planted']:,.{_DIGITS}g} {_SHORT.get(unit := row['unit'].partition(' ')[0], unit)}",
            f"{row['measured']:,.{_DIGITS}g}",
            _error(row),
            str(row["n"]),
        )
    return table


def _quantity(row: Mapping[Any, Any]) -> str:
    shape = f", {row['read_shape'].replace('_', '-')}" if row["quantity"] == "read" else ""
    return f"{row['quantity']}{shape}"


def _error(row: Mapping[Any, Any]) -> str:
    """The error with the half-width of its interval; one block has none."""
    if not math.isfinite(row["error_lo"]):
        return f"{row['error_pct']:+.2f} (one block)"
    return f"{row['error_pct']:+.2f} ± {(row['error_hi'] - row['error_lo']) / 2:.2f}"


def _effects(found: pd.DataFrame) -> str:
    told = found[found["axis"] != "replica"]
    if told.empty:
        return ""
    right, parts = int(told["right"].sum()), "; ".join(map(_effect, rows_of(told)))
    return f"Effects: {right} of {len(told)} are called what they are. {parts}."


def _effect(row: Mapping[Any, Any]) -> str:
    measured, truth = (f"{100 * (row[name] - 1):+.1f} %" for name in ("ratio", "planted"))
    said = row["verdict"] if row["right"] else f"{row['verdict']} (expected: {row['expected']})"
    return f"{row['axis']} {row['a_value']:g} → {row['b_value']:g}: {measured} (planted {truth}), {said}"


def _pairs(found: pd.DataFrame) -> str:
    if found.empty:
        return ""
    judged = int(found["verdict"].isin(("faster", "slower")).sum())
    return (
        f"Equal cells: the intervals of {int(found['different'].sum())} of {_count(len(found), 'pair')} leave out 1 "
        f"(one in twenty does by chance); {judged} are judged different by feedrate's stricter rule."
    )


def _bottlenecks(found: pd.DataFrame) -> str:
    if found.empty:
        return ""
    return (
        f"Bottlenecks: {int(found['right'].sum())} of {_count(len(found), 'training cell')} are called bound by the "
        "stage that was planted to hold them back."
    )
