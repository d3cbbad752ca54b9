"""The end of a calibration sweep on the terminal: planted, measured, error; then effects, equal cells, bottlenecks."""

from __future__ import annotations

import math

import pandas as pd
from rich.console import Console
from rich.table import Table

from feedrate.analysis.estimates import rows_of
from feedrate.questions.calibration.analysis import bottlenecks, effects, planted, same_pairs, summary
from feedrate.schema.words import plural

_DIGITS = 5
"""That are shown of a value."""
_SHORT = {"bytes": "B"}


def show(trials: pd.DataFrame, console: Console) -> None:
    """Print what was planted and what was measured by the trials of one run; nothing where nothing was planted."""
    found = planted(trials)
    if found.empty:
        return
    _say(console, "\nPlanted costs, read back (means over blocks; what the rest costs is taken off)", "bold")
    console.print(_costs(found))
    for row in rows_of(summary(found)):
        _say(
            console,
            f"  {row['quantity']}: median error {row['median_pct']:.2f} %, worst {row['worst_pct']:+.2f} % "
            f"({plural(row['cells'], 'cell')}, n ≥ {row['n']})",
        )
    for line in (_effects(effects(trials)), _pairs(same_pairs(trials)), _bottlenecks(bottlenecks(trials))):
        if line:
            _say(console, line)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _costs(found: pd.DataFrame) -> Table:
    """One line a quantity and configuration; replicas count in the lines below the table alone."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("quantity", "step", "workers", "batch", "planted", "measured", "error, %", "n"):
        table.add_column(name, justify="left" if name == "quantity" else "right", no_wrap=True)
    first = found[found["replica"] == 0].sort_values(["num_workers", "batch_size", "planted"], kind="stable")
    order = {name: place for place, name in enumerate(dict.fromkeys(found["quantity"]))}
    for row in rows_of(first.sort_values("quantity", key=lambda names: names.map(order), kind="stable")):
        shape = f", {row['read_shape'].replace('_', '-')}" if row["quantity"] == "read" else ""
        unit = row["unit"].partition(" ")[0]
        error = f"{row['error_pct']:+.2f} (one block)"
        if math.isfinite(row["error_lo"]):
            error = f"{row['error_pct']:+.2f} ± {(row['error_hi'] - row['error_lo']) / 2:.2f}"
        table.add_row(
            f"{row['quantity']}{shape}",
            "–" if row["mode"] == "load" else f"{row['step_ms']:g} ms",
            str(row["num_workers"]),
            str(row["batch_size"]),
            f"{row['planted']:,.{_DIGITS}g} {_SHORT.get(unit, unit)}",
            f"{row['measured']:,.{_DIGITS}g}",
            error,
            str(row["n"]),
        )
    return table


def _effects(found: pd.DataFrame) -> str:
    shown = found[found["axis"] != "replica"]
    if shown.empty:
        return ""
    parts = []
    for row in rows_of(shown):
        measured, truth = (f"{100 * (row[name] - 1):+.1f} %" for name in ("ratio", "planted"))
        verdict = row["verdict"] if row["right"] else f"{row['verdict']} (expected: {row['expected']})"
        change = f"{row['axis']} {row['a_value']:g} → {row['b_value']:g}"
        parts.append(f"{change}: {measured} (planted {truth}), {verdict}")
    return f"Effects: {int(shown['right'].sum())} of {len(shown)} are called what they are. {'; '.join(parts)}."


def _pairs(found: pd.DataFrame) -> str:
    if found.empty:
        return ""
    judged = int(found["verdict"].isin(("faster", "slower")).sum())
    return (
        f"Equal cells: the intervals of {int(found['different'].sum())} of {plural(len(found), 'pair')} leave out 1 "
        f"(one in twenty does by chance); {judged} are judged different by feedrate's stricter rule."
    )


def _bottlenecks(found: pd.DataFrame) -> str:
    if found.empty:
        return ""
    return (
        f"Bottlenecks: {int(found['right'].sum())} of {plural(len(found), 'training cell')} are called bound by the "
        "stage that was planted to hold them back."
    )
