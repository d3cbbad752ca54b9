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
    Slice,
    held,
    listed,
    numbers,
    plain,
    sized,
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
    series = Series(sorted({w for part in parts for w in numbers(part.frame, "num_workers")}))
    for part in parts:
        frame, kept = held(part.frame, ("batch_size", "num_workers"))
        rows = _rows(frame)
        sheet.add(_panel(part, rows, series), listed(rows, part.row(), COLUMNS | {"failed": "failed"}), kept)
    if any(row["low"] is None for row in sheet.rows):
        sheet.note("Marks without a whisker rest on one block: nothing can be said about their spread.")
    return sheet.figure(series.keys(), "No trial ended well here, so there is no throughput to show.")


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "batch": int(cell["batch_size"]),
            "workers": int(cell["num_workers"]),
            "series": words.plural(int(cell["num_workers"]), "worker"),
            "value": float(cell["samples_per_s"]),
            "lo": plain(cell["lo"]),
            "hi": plain(cell["hi"]),
            "n": int(cell["n"]),
            "failed": int(cell["failed"]),
        }
        for cell in rows_of(frame.sort_values(["batch_size", "num_workers"]))
    ]


def _panel(part: Slice, rows: Sequence[Row], series: Series) -> Panel:
    layers = series.layers(rows, "samples per second", ",.3~s", alt.Scale(zero=True, nice=5))
    return Panel(part.title, part.subtitle, _message(rows), sized(layers, part.title, part.subtitle, 260))


def _message(rows: Sequence[Row]) -> str:
    """Name the fastest worker count at the largest batch and set it against the fewest workers."""
    batch = max(row["batch"] for row in rows)
    end = [row for row in rows if row["batch"] == batch]
    best, least = max(end, key=lambda row: row["value"]), min(end, key=lambda row: row["workers"])
    text = (
        f"at batch {batch}, {best['series']} {'reaches' if best['workers'] == 1 else 'reach'} "
        f"{words.number(best['value'])} samples/s ({words.interval(best['lo'], best['hi'], best['n'])})"
    )
    if best is least:
        return words.sentence(f"{text}, and no other count is faster" if len(end) > 1 else text)
    verb = "does" if least["workers"] == 1 else "do"
    text += f", {words.times(best['value'] / least['value'])} what {least['series']} {verb}"
    if words.known(best["lo"]) and words.known(least["hi"]) and best["lo"] <= least["hi"]:
        text += "; their intervals overlap"
    return words.sentence(text)
