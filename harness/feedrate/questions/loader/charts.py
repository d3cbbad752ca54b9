"""A loader's throughput by batch size and workers."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    COLUMNS,
    Figure,
    Row,
    Sheet,
    chart,
    held,
    interval,
    listed,
    numbers,
    overlap,
    point,
    slices,
)
from feedrate.charts.plot import Plot, Side, amount, keys, of_workers
from feedrate.schema import words


@chart("Throughput by batch size", "How does speed change with batch size and workers?", "cells")
def throughput(sheet: Sheet, cells: pd.DataFrame) -> Figure:
    """Draw throughput against batch size, a line a worker count."""
    subsets = slices(cells, (TRAIN, EMULATED, LOAD))
    looks = of_workers(sorted({count for subset in subsets for count in numbers(subset.frame, "num_workers")}))
    for subset in subsets:
        frame, kept = held(subset.frame, ("batch_size", "num_workers"))
        rows = [
            {**point(cell), "series": words.plural(int(cell["num_workers"]), "worker"), "failed": int(cell["failed"])}
            for cell in rows_of(frame.sort_values(["batch_size", "num_workers"]))
        ]
        x = Side("batch", "batch size", {"paddingInner": 0.1}, {"labelAngle": 0}, tuple(numbers(frame, "batch_size")))
        y = amount("value", "samples per second")
        plot = Plot(rows=rows, x=x, y=y, by="series", looks=looks, beside=("series", list(looks)), joined=True)
        panel = plot.panel(subset.title, subset.subtitle, _message(rows))
        sheet.add(panel, listed(rows, subset.row(), COLUMNS | {"failed": "failed"}), kept)
    if any(row["low"] is None for row in sheet.rows):
        sheet.note("Marks without a whisker rest on one repetition: nothing can be said about their spread.")
    return sheet.figure(keys(looks), "No measurement ended well here, so there is no throughput to show.")


def _message(rows: Sequence[Row]) -> str:
    """Name the fastest worker count at the largest batch and set it against the fewest workers."""
    batch = max(row["batch"] for row in rows)
    end = [row for row in rows if row["batch"] == batch]
    best, least = max(end, key=lambda row: row["value"]), min(end, key=lambda row: row["workers"])
    text = f"batch {batch}: {best['series']}, {words.number(best['value'])} samples/s ({interval(best)})"
    if best is least:
        return words.sentence(f"{text}; no other count is faster" if len(end) > 1 else text)
    ratio = words.times(best["value"] / least["value"])
    return words.sentence(f"{text}, {ratio} the speed with {least['series']}{overlap(best, least)}")
