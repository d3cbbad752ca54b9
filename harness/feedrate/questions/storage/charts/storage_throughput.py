"""Throughput of every storage format, cold and warm apart, each mark with its 95 % interval over blocks."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from feedrate.charts.figure import EMULATED, LOAD, RATE, TRAIN, Figure, Panel, Row, Sheet, interval, listed, overlap
from feedrate.charts.marks import height
from feedrate.questions.storage import panels
from feedrate.schema import words

TITLE = "Throughput by storage format"
QUESTION = "How many samples a second does each format deliver, from the page cache and from the disk?"
READS = "trials"
COLUMNS = {
    "format": "format",
    "stores": "stores",
    "page_cache": "state",
    **RATE,
    "samples in the set": "samples",
    "shuffle_buffer": "buffer",
}


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a line a format, sorted by its warm throughput."""
    shown: list[Row] = []

    def panel(part: panels.Part, sheet: Sheet) -> None:
        rows = panels.drawn(part)
        shown.extend(rows)
        layers = panels.format_dots(rows, "samples per second", largest_first=True)
        count = len({row["format"] for row in rows})
        panel = Panel.draw(part.title, part.subtitle, _message(rows), layers, height(count))
        sheet.add(panel, listed(rows, part.row(), COLUMNS), part.held)

    parts = panels.parts(trials, kinds=(LOAD, EMULATED, TRAIN))
    sheet = panels.sheet_of(TITLE, QUESTION, parts, panel, trials)
    return sheet.figure(panels.keys(shown), "No trial that loads samples ended well here.")


def _message(rows: Sequence[Row]) -> str:
    """Name the fastest and the slowest in each state."""
    sentences = []
    for state, own in panels.by_state(rows).items():
        best, worst = (pick(own, key=lambda row: row["value"]) for pick in (max, min))
        text = f"{state}, {best['format']} brings {words.number(best['value'])} samples/s ({interval(best)})"
        if best["format"] != worst["format"]:
            text += f", {words.times(best['value'] / worst['value'])} what {worst['format']} does"
            text += overlap(best, worst)
        sentences.append(words.sentence(text))
    return " ".join(sentences)
