"""Charts of a loader's throughput: by batch size and workers, and formats side by side.

Where the samples lie in the page cache, formats are compared by what reading and decoding cost, not by disks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    COLUMNS,
    Figure,
    Key,
    Panel,
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
    table,
)
from feedrate.charts.marks import BLOCKS, Looks, Series, dots, hover, look, rate
from feedrate.charts.theme import SHAPES, colour
from feedrate.schema import words

MOST_ROWS = 12
"""Settings in one panel of formats; beyond it one batch size stands for all."""
MOST_FORMATS = len(SHAPES)
"""Formats with a shape of their own; beyond it only the fastest are drawn."""
CACHED = {
    "warm": "Samples lie in the page cache from the start: this is the cost of reading and decoding, not of a disk.",
    "cold": "At the start the page cache holds next to none of them, each is read once at most: the disk has its part.",
}
"""What a panel's page cache means."""


@chart("Throughput by batch size", "How many samples a second come through, and do more workers help?", "cells")
def throughput(sheet: Sheet, cells: pd.DataFrame) -> Figure:
    """Draw throughput against batch size, a line a worker count."""
    parts = slices(cells, (TRAIN, EMULATED, LOAD))
    series = Series(sorted({count for part in parts for count in numbers(part.frame, "num_workers")}))
    for part in parts:
        frame, kept = held(part.frame, ("batch_size", "num_workers"))
        rows = [
            {**point(cell), "series": words.plural(int(cell["num_workers"]), "worker"), "failed": int(cell["failed"])}
            for cell in rows_of(frame.sort_values(["batch_size", "num_workers"]))
        ]
        layers = series.layers(rows, "samples per second", ",.3~s", alt.Scale(zero=True, nice=5))
        panel = Panel.draw(part.title, part.subtitle, _throughput_message(rows), layers, 260)
        sheet.add(panel, listed(rows, part.row(), COLUMNS | {"failed": "failed"}), kept)
    if any(row["low"] is None for row in sheet.rows):
        sheet.note("Marks without a whisker rest on one repetition: nothing can be said about their spread.")
    return sheet.figure(series.keys(), "No measurement ended well here, so there is no throughput to show.")


def _throughput_message(rows: Sequence[Row]) -> str:
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


@chart("Storage formats side by side", "Does it matter how the samples lie on disk?", "cells")
def formats(sheet: Sheet, cells: pd.DataFrame) -> Figure:
    """Draw the formats, loading alone first: there the difference is not hidden behind a model."""
    kinds = (LOAD, EMULATED, TRAIN)
    parts = sorted(slices(cells, kinds), key=lambda part: kinds.index(part.kind))
    drawn = [(part, *held(part.frame, ("batch_size", "num_workers", "storage_format"))) for part in parts]
    names = _fastest([frame for _, frame, _ in drawn], sheet)
    looks = {name: (colour(f"name-{place % 7}"), SHAPES[place % 7]) for place, name in enumerate(names)}
    columns = COLUMNS | {"storage_format": "format"}
    for part, frame, kept in drawn:
        every = [
            _format_row(cell) for cell in rows_of(frame.sort_values(["batch_size", "num_workers", "storage_format"]))
        ]
        rows = _thinned([row for row in every if row["format"] in looks], sheet)
        if len({row["format"] for row in rows}) < 2:
            continue
        height = 92 + (14 + 9 * len(looks)) * len({row["setting"] for row in rows})
        panel = Panel.draw(part.title, part.subtitle, _formats_message(rows), _formats_layers(rows, looks), height)
        sheet.add(panel, listed(every, part.row(), columns), kept)
        for state in sorted(set(frame["page_cache"].dropna())):
            sheet.note(CACHED[str(state)])
    legend = [Key(name, *pair) for name, pair in looks.items()]
    return sheet.figure(legend, "Nothing to compare: fewer than two storage formats ended well in one setting.")


def _fastest(frames: Sequence[pd.DataFrame], sheet: Sheet) -> list[str]:
    """The formats that are drawn: of many those that are fastest somewhere, by their best place in any setting."""
    places: dict[str, int] = {}
    for frame in frames:
        for _, part in frame.groupby(["batch_size", "num_workers"], dropna=False):
            ranked = part.sort_values("samples_per_s", ascending=False)["storage_format"].dropna().unique()
            for place, name in enumerate(ranked):
                places[str(name)] = min(place, places.get(str(name), place))
    if len(places) > MOST_FORMATS:
        sheet.note(
            f"Of {len(places)} formats the {MOST_FORMATS} that come first somewhere are drawn; the table has all."
        )
    return sorted(sorted(places, key=lambda name: (places[name], name))[:MOST_FORMATS])


def _format_row(cell: Row) -> dict[str, Any]:
    row = point(cell)
    setting = f"batch {row['batch']}, {words.plural(row['workers'], 'worker')}"
    return {**row, "setting": setting, "format": str(cell["storage_format"])}


def _thinned(rows: list[dict[str, Any]], sheet: Sheet) -> list[dict[str, Any]]:
    """Keep one batch size, the middle one, where a panel would hold too many settings to be read."""
    if len({row["setting"] for row in rows}) <= MOST_ROWS:
        return rows
    batches = sorted({row["batch"] for row in rows})
    middle = batches[len(batches) // 2]
    sheet.note(f"Of {len(batches)} batch sizes only {middle} is shown here.")
    return [row for row in rows if row["batch"] == middle]


def _formats_layers(rows: Sequence[Row], looks: Looks) -> list[alt.Chart]:
    formats = list(looks)
    tone, shape = look("format", looks, looks)
    base = alt.Chart(table(rows)).encode(
        y=alt.Y(
            "setting:N",
            sort=list(dict.fromkeys(row["setting"] for row in rows)),
            title=None,
            axis=alt.Axis(grid=True, ticks=False, domain=False),
            scale=alt.Scale(paddingInner=0.2),
        ),
        yOffset=alt.YOffset("format:N", sort=formats, scale=alt.Scale(domain=formats, paddingOuter=0.6)),
        color=tone,
    )
    x: dict[str, Any] = {"title": "samples per second", "scale": alt.Scale(zero=True)}
    x["axis"] = alt.Axis(format=",.3~s", tickCount=4, grid=False, domain=True)
    tooltip = hover({"setting:N": "", "format:N": "storage format", **rate("samples per second"), **BLOCKS})
    return dots(base, x, shape, tooltip, size=60, strokeWidth=2)


def _formats_message(rows: Sequence[Row]) -> str:
    """Compare the fastest with the slowest format where most were measured: at most workers and the largest batch."""
    counts = Counter((row["workers"], row["batch"]) for row in rows)
    workers, batch = max(counts, key=lambda place: (counts[place], *place))
    end = [row for row in rows if (row["workers"], row["batch"]) == (workers, batch)]
    best, worst = (pick(end, key=lambda row: row["value"]) for pick in (max, min))
    text = f"at batch {batch} with {words.plural(workers, 'worker')}, "
    if best["format"] == worst["format"]:
        return words.sentence(f"{text}only {best['format']} was measured ({words.number(best['value'])} samples/s)")
    text += (
        f"{best['format']} brings {words.number(best['value'])} samples/s ({interval(best)}), "
        f"{words.times(best['value'] / worst['value'])} what {worst['format']} does"
    )
    return words.sentence(text + overlap(best, worst))
