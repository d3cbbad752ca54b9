"""Throughput of every storage format, cold and warm apart, each mark with its 95 % interval over blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from feedrate.charts import format_panels as storage
from feedrate.charts.figure import EMULATED, LOAD, TRAIN, Figure, Panel, Row, Sheet, listed, sized
from feedrate.charts.marks import height
from feedrate.schema import words

TITLE = "Throughput by storage format"
QUESTION = "How many samples a second does each format deliver, from the page cache and from the disk?"
READS = "trials"
COLUMNS = {
    "format": "format",
    "stores": "stores",
    "page_cache": "state",
    "samples per s": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
    "samples in the set": "samples",
    "shuffle_buffer": "buffer",
}


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a line a format, sorted by its warm throughput."""
    shown: list[dict[str, Any]] = []

    def panel(part: storage.Part, sheet: Sheet) -> None:
        rows = storage.drawn(part, "samples_per_s", "lo", "hi")
        shown.extend(rows)
        layers = storage.dots(rows, "samples per second", largest_first=True)
        count = len({row["format"] for row in rows})
        chart = sized(layers, part.title, part.subtitle, height(count))
        sheet.add(Panel(part.title, part.subtitle, _message(rows), chart), listed(rows, part.row(), COLUMNS), part.held)

    parts = storage.parts(trials, kinds=(LOAD, EMULATED, TRAIN))
    sheet = storage.sheet_of(TITLE, QUESTION, parts, panel, trials)
    return storage.closed(sheet, shown, "No trial that loads samples ended well here.")


def _message(rows: Sequence[Row]) -> str:
    """Name the fastest and the slowest in each state."""
    said = []
    for state in storage.MARKS:
        part = [row for row in rows if row["state"] == state]
        if not part:
            continue
        best, worst = max(part, key=lambda row: row["value"]), min(part, key=lambda row: row["value"])
        text = (
            f"{state}, {best['format']} brings {words.number(best['value'])} samples/s "
            f"({words.interval(best['lo'], best['hi'], best['n'])})"
        )
        if best["format"] != worst["format"]:
            text += f", {words.times(best['value'] / worst['value'])} what {worst['format']} does"
            if words.known(best["lo"]) and words.known(worst["hi"]) and best["lo"] <= worst["hi"]:
                text += "; their intervals overlap"
        said.append(words.sentence(text))
    return " ".join(said)
