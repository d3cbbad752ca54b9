"""Memory of workers whose dataset keeps an index: what they grow by while they read, and what each holds then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.worker_costs import growth
from feedrate.charts import workers
from feedrate.charts.figure import Figure, Panel, Row, Sheet, estimate, interval, listed
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
        cells = rows_of(part)
        cell, count = cells[0], int(cells[0]["num_workers"])
        entries = f"an index of {int(cell['index_entries']):,} entries"
        read = f"{words.number(part['samples'].min(), 2)} to {words.number(part['samples'].max(), 2)} samples"
        for name, divisor, title, subtitle in (
            ("grew_bytes", 1, f"Growth of {words.plural(count, 'worker')}", f"{entries}, {read} read"),
            ("end_bytes", count, "What one worker holds", f"{entries}, after the window"),
        ):
            if not (rows := _rows(cells, name, divisor)):
                continue
            drawn += rows
            layers = workers.rows_of_dots(rows, "memory of its own (MiB)", log=False)
            panel = Panel.draw(title, subtitle, _message(rows, title), layers, height(len(rows)))
            given = {"what": title, "what was loaded": workers.what(cell, ("index_kind",))}
            sheet.add(panel, listed(rows, given, _COLUMNS), {})
    sheet.note(
        "Memory of its own is what no other process shares. Forked workers share what the training process held, until "
        "either writes to it, and looking at a Python object is a write; spawned ones get a copy at once. A page is "
        "copied once: growth ends when every worker holds the whole index."
    )
    return sheet.figure(workers.keys(drawn), _MISSING)


def _rows(cells: Sequence[Row], name: str, divisor: int) -> list[dict[str, Any]]:
    """A row a cell that has a value, in MiB, most first."""
    rows = []
    for cell in cells:
        row, begin = estimate(cell, name), workers.begin(cell)
        mib = {key: None if row[key] is None else row[key] / divisor / MIB for key in ("value", "lo", "hi")}
        if mib["value"] is not None:
            rows.append({"label": f"{cell['index_kind']}, {begin}", "begin": begin, **row, **mib})
    return sorted(rows, key=lambda row: (-row["value"], row["label"]))


def _message(rows: Sequence[Row], title: str) -> str:
    """Name the most and the least."""
    ends = [f"{row['label']}, {words.number(row['value'])} MiB ({interval(row)})" for row in (rows[0], rows[-1])]
    return words.sentence(f"{title}: {'; '.join(ends[: min(2, len(rows))])}".replace("-", "−"))
