"""Memory of workers whose dataset keeps an index: what they grow by while they read, and what each holds then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.worker_costs import growth
from feedrate.charts import workers
from feedrate.charts.figure import Figure, Panel, Row, Sheet, listed, plain, sized
from feedrate.charts.marks import height
from feedrate.schema import words

TITLE = "Memory of workers"
QUESTION = "How much memory do workers come to hold that is theirs alone, by what the dataset keeps of its samples?"
READS = "trials"
MIB = 2**20
_COLUMNS = {"index, start method": "label", "MiB": "value", "low": "lo", "high": "hi", "n": "n"}
_MISSING = "No dataset kept an index here, so that workers had nothing to grow by."


def draw(trials: pd.DataFrame) -> Figure:
    """Draw two panels a setting: growth of all workers, and what one of them holds after the window."""
    found = growth(trials) if len(trials) else trials
    sheet, drawn = Sheet(TITLE, QUESTION), list[Row]()
    for _, part in found.groupby("setting", sort=False) if len(found) else ():
        cell = {str(name): value for name, value in part.iloc[0].items()}
        count = int(cell["num_workers"])
        entries = f"an index of {int(cell['index_entries']):,} entries"
        read = f"{words.number(part['samples'].min(), 2)} to {words.number(part['samples'].max(), 2)} samples"
        asked = (
            ("grew_bytes", 1, f"Growth of {words.plural(count, 'worker')}", f"{entries}, {read} read"),
            ("end_bytes", count, "What one worker holds", f"{entries}, after the window"),
        )
        for name, divisor, title, subtitle in asked:
            if not (rows := _rows(part, name, divisor)):
                continue
            drawn += rows
            chart = sized(workers.dots(rows, "memory of its own (MiB)", log=False), title, subtitle, height(len(rows)))
            given = {"what": title, "what was loaded": workers.what(cell, ("index_kind",))}
            sheet.add(Panel(title, subtitle, _message(rows, title), chart), listed(rows, given, _COLUMNS), {})
    sheet.note(
        "Memory of its own is what no other process shares. Forked workers share what the training process held, until "
        "either writes to it, and looking at a Python object is a write; spawned ones get a copy at once. A page is "
        "copied once: growth ends when every worker holds the whole index."
    )
    return sheet.figure(workers.keys(drawn), _MISSING)


def _rows(part: pd.DataFrame, name: str, divisor: int) -> list[dict[str, Any]]:
    def mib(value: Any) -> float | None:
        known = plain(value)
        return None if known is None else float(known) / divisor / MIB

    rows = [
        {
            "label": f"{cell['index_kind']}, {workers.begin(cell)}",
            "begin": workers.begin(cell),
            **{key: mib(cell[column]) for key, column in (("value", name), ("lo", f"{name}_lo"), ("hi", f"{name}_hi"))},
            "n": int(cell["n"]),
        }
        for cell in rows_of(part)
    ]
    return sorted((row for row in rows if row["value"] is not None), key=lambda row: (-row["value"], row["label"]))


def _message(rows: Sequence[Row], title: str) -> str:
    """Name the most and the least."""
    most, least = rows[0], rows[-1]
    said = (
        f"{title}: {most['label']}, {words.number(most['value'])} MiB "
        f"({words.interval(most['lo'], most['hi'], most['n'])})"
    )
    if least is not most:
        said += (
            f"; {least['label']}, {words.number(least['value'])} MiB "
            f"({words.interval(least['lo'], least['hi'], least['n'])})"
        )
    return words.sentence(said.replace("-", "−"))
