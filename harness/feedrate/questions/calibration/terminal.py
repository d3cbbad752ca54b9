"""The end of a calibration sweep on the terminal: planted, measured, error; then effects, equal cells, bottlenecks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd
from rich.console import Console
from rich.table import Table

from feedrate.analysis.estimates import rows_of
from feedrate.questions.calibration.analysis import DIFFERENT, bottlenecks, effects, planted, same_pairs, summary
from feedrate.schema.words import plural

_COLUMNS = ("quantity", "step", "workers", "batch", "planted", "measured", "error, %", "n")


def show(trials: pd.DataFrame, console: Console) -> None:
    """Print what was planted and what was measured by the trials of one run; nothing where nothing was planted."""
    found = planted(trials)
    if found.empty:
        return

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False)

    say("\nPlanted costs, read back (means over blocks; what the rest costs is taken off)", "bold")
    console.print(_costs(found))
    for row in rows_of(summary(found)):
        say(
            f"  {row['quantity']}: median error {row['median_pct']:.2f} %, worst {row['worst_pct']:+.2f} % "
            f"({plural(row['cells'], 'cell')}, n ≥ {row['n']})"
        )
    for line in _verdicts(trials):
        say(line)


def _costs(found: pd.DataFrame) -> Table:
    """One line a quantity and configuration; replicas count in the lines below the table alone."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "quantity" else "right", no_wrap=True)
    order = {name: place for place, name in enumerate(dict.fromkeys(found["quantity"]))}
    first = found[found["replica"] == 0].sort_values(["num_workers", "batch_size", "planted"], kind="stable")
    for row in rows_of(first.sort_values("quantity", key=lambda names: names.map(order), kind="stable")):
        shape = f", {row['read_shape'].replace('_', '-')}" if row["quantity"] == "read" else ""
        unit = row["unit"].partition(" ")[0].replace("bytes", "B")
        error = f"{row['error_pct']:+.2f} (one block)"
        if math.isfinite(row["error_lo"]):
            error = f"{row['error_pct']:+.2f} ± {(row['error_hi'] - row['error_lo']) / 2:.2f}"
        table.add_row(
            f"{row['quantity']}{shape}",
            "–" if row["mode"] == "load" else f"{row['step_ms']:g} ms",
            str(row["num_workers"]),
            str(row["batch_size"]),
            f"{row['planted']:,.5g} {unit}",
            f"{row['measured']:,.5g}",
            error,
            str(row["n"]),
        )
    return table


def _verdicts(trials: pd.DataFrame) -> Iterator[str]:
    """What was called what it is: planted effects, equal cells, planted bottlenecks."""
    small = effects(trials)
    small = small[small["axis"] != "replica"]
    parts = []
    for row in rows_of(small):
        measured, truth = (f"{100 * (row[name] - 1):+.1f} %" for name in ("ratio", "planted"))
        verdict = row["verdict"] if row["right"] else f"{row['verdict']} (expected: {row['expected']})"
        change = f"{row['axis']} {row['a_value']:g} → {row['b_value']:g}"
        parts.append(f"{change}: {measured} (planted {truth}), {verdict}")
    if parts:
        yield f"Effects: {int(small['right'].sum())} of {len(small)} are called what they are. {'; '.join(parts)}."
    if len(pairs := same_pairs(trials)):
        yield (
            f"Equal cells: the intervals of {int(pairs['different'].sum())} of {plural(len(pairs), 'pair')} leave out "
            f"1 (one in twenty does by chance); {int(pairs['verdict'].isin(DIFFERENT).sum())} are judged different by "
            "feedrate's stricter rule."
        )
    if len(bound := bottlenecks(trials)):
        yield (
            f"Bottlenecks: {int(bound['right'].sum())} of {plural(len(bound), 'training cell')} are called bound by "
            "the stage that was planted to hold them back."
        )
