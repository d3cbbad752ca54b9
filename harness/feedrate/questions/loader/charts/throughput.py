"""Throughput as the batch grows, a line a worker count, each mark with its 95 % interval over blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import (
    COLUMNS,
    EMULATED,
    LOAD,
    TRAIN,
    Figure,
    Panel,
    Row,
    Sheet,
    estimate,
    held,
    interval,
    listed,
    numbers,
    overlap,
    slices,
)
from feedrate.charts.marks import Series
from feedrate.schema import words

TITLE = "Throughput by batch size"
QUESTION = "How many samples a second come through, and do more workers help?"


def draw(cells: pd.DataFrame) -> Figure:
    """Draw throughput against batch size."""
    sheet = Sheet(TITLE, QUESTION)
    parts = slices(cells, (TRAIN, EMULATED, LOAD))
    series = Series(sorted({count for part in parts for count in numbers(part.frame, "num_workers")}))
    for part in parts:
        frame, kept = held(part.frame, ("batch_size", "num_workers"))
        rows = [_row(cell) for cell in rows_of(frame.sort_values(["batch_size", "num_workers"]))]
        layers = series.layers(rows, "samples per second", ",.3~s", alt.Scale(zero=True, nice=5))
        panel = Panel.draw(part.title, part.subtitle, _message(rows), layers, 260)
        sheet.add(panel, listed(rows, part.row(), COLUMNS | {"failed": "failed"}), kept)
    if any(row["low"] is None for row in sheet.rows):
        sheet.note("Marks without a whisker rest on one block: nothing can be said about their spread.")
    return sheet.figure(series.keys(), "No trial ended well here, so there is no throughput to show.")


def _row(cell: Row) -> dict[str, Any]:
    workers = int(cell["num_workers"])
    given = {"batch": int(cell["batch_size"]), "workers": workers, "series": words.plural(workers, "worker")}
    return {**given, **estimate(cell), "failed": int(cell["failed"])}


def _message(rows: Sequence[Row]) -> str:
    """Name the fastest worker count at the largest batch and set it against the fewest workers."""
    batch = max(row["batch"] for row in rows)
    end = [row for row in rows if row["batch"] == batch]
    best, least = max(end, key=lambda row: row["value"]), min(end, key=lambda row: row["workers"])
    reach, do = ("reaches" if best["workers"] == 1 else "reach"), ("does" if least["workers"] == 1 else "do")
    text = f"at batch {batch}, {best['series']} {reach} {words.number(best['value'])} samples/s ({interval(best)})"
    if best is least:
        return words.sentence(f"{text}, and no other count is faster" if len(end) > 1 else text)
    text += f", {words.times(best['value'] / least['value'])} what {least['series']} {do}"
    return words.sentence(text + overlap(best, least))
