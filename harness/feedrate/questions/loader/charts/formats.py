"""Storage formats side by side, at the same batch size and workers, each mark with its interval.

Where the samples lie in the page cache this compares what reading and decoding cost, not disks.
"""

from __future__ import annotations

from collections import Counter
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
    Key,
    Panel,
    Row,
    Sheet,
    Slice,
    held,
    listed,
    plain,
    sized,
    slices,
    table,
)
from feedrate.charts.theme import SHAPES, colour
from feedrate.schema import words

TITLE = "Storage formats side by side"
QUESTION = "Does it matter how the samples lie on disk?"
MOST_ROWS = 12
"""Settings in one panel; beyond it one batch size stands for all."""
MOST_FORMATS = len(SHAPES)
"""Formats with a shape of their own; beyond it only the fastest are drawn."""
CACHED = {
    "warm": "Samples lie in the page cache from the start: this is the cost of reading and decoding, not of a disk.",
    "cold": "At the start the page cache holds next to none of them, each is read once at most: the disk has its part.",
    "": "Samples lie in the page cache after the first pass: this is the cost of reading and decoding, not of a disk.",
}
"""What a panel's page cache means; an older run did not say."""


def draw(cells: pd.DataFrame) -> Figure:
    """Draw the formats, loading alone first: there the difference is not hidden behind a model."""
    sheet = Sheet(TITLE, QUESTION)
    parts = sorted(slices(cells, (LOAD, EMULATED, TRAIN)), key=lambda part: (LOAD, EMULATED, TRAIN).index(part.kind))
    drawn = [(part, *held(part.frame, ("batch_size", "num_workers", "storage_format"))) for part in parts]
    names = _names([frame for _, frame, _ in drawn], sheet)
    for part, frame, kept in drawn:
        every = _rows(frame)
        rows = _thinned([row for row in every if row["format"] in names], sheet)
        if len({row["format"] for row in rows}) < 2:
            continue
        columns = COLUMNS | {"storage_format": "format"}
        sheet.add(_panel(part, rows, names), listed(every, part.row(), columns), kept)
        for state in sorted(set(frame["page_cache"].fillna(""))):
            sheet.note(CACHED[str(state)])
    return sheet.figure(_keys(names), "Nothing to compare: fewer than two storage formats ended well in one setting.")


def _names(frames: Sequence[pd.DataFrame], sheet: Sheet) -> list[str]:
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


def _keys(names: Sequence[str]) -> list[Key]:
    return [Key(name, colour(f"name-{place % 7}"), SHAPES[place % 7]) for place, name in enumerate(names)]


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "setting": f"batch {int(cell['batch_size'])}, {words.plural(int(cell['num_workers']), 'worker')}",
            "batch": int(cell["batch_size"]),
            "workers": int(cell["num_workers"]),
            "format": str(cell["storage_format"]),
            "value": float(cell["samples_per_s"]),
            "lo": plain(cell["lo"]),
            "hi": plain(cell["hi"]),
            "n": int(cell["n"]),
        }
        for cell in rows_of(frame.sort_values(["batch_size", "num_workers", "storage_format"]))
    ]


def _thinned(rows: list[dict[str, Any]], sheet: Sheet) -> list[dict[str, Any]]:
    """Keep one batch size, the middle one, where a panel would hold too many settings to be read."""
    if len({row["setting"] for row in rows}) <= MOST_ROWS:
        return rows
    batches = sorted({row["batch"] for row in rows})
    middle = batches[len(batches) // 2]
    sheet.note(f"Of {len(batches)} batch sizes only {middle} is shown here.")
    return [row for row in rows if row["batch"] == middle]


def _panel(part: Slice, rows: Sequence[Row], names: Sequence[str]) -> Panel:
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    keys = _keys(names)
    y = alt.Y(
        "setting:N",
        sort=settings,
        title=None,
        axis=alt.Axis(grid=True, ticks=False, domain=False),
        scale=alt.Scale(paddingInner=0.2),
    )
    shift = alt.YOffset("format:N", sort=list(names), scale=alt.Scale(domain=list(names), paddingOuter=0.6))
    tone = alt.Color("format:N", title=None, scale=alt.Scale(domain=list(names), range=[key.colour for key in keys]))
    base = alt.Chart(table(rows)).encode(y=y, yOffset=shift, color=tone)
    x_axis = alt.Axis(format=",.3~s", tickCount=4, grid=False, domain=True)
    layers = [
        base.transform_filter("isValid(datum.lo) && isValid(datum.hi)")
        .mark_rule(strokeWidth=2)
        .encode(
            x=alt.X("lo:Q", title="samples per second", axis=x_axis, scale=alt.Scale(zero=True)), x2=alt.X2("hi:Q")
        ),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=alt.X("value:Q", title="samples per second", scale=alt.Scale(zero=True), axis=x_axis),
            shape=alt.Shape(
                "format:N", title=None, scale=alt.Scale(domain=list(names), range=[key.shape for key in keys])
            ),
            tooltip=[
                alt.Tooltip("setting:N"),
                alt.Tooltip("format:N", title="storage format"),
                alt.Tooltip("value:Q", title="samples per second", format=",.4~g"),
                alt.Tooltip("lo:Q", title="low", format=",.4~g"),
                alt.Tooltip("hi:Q", title="high", format=",.4~g"),
                alt.Tooltip("n:Q", title="blocks"),
            ],
        ),
    ]
    height = 92 + (14 + 9 * len(names)) * len(settings)
    return Panel(part.title, part.subtitle, _message(rows), sized(layers, part.title, part.subtitle, height))


def _message(rows: Sequence[Row]) -> str:
    """Compare the fastest with the slowest format where most were measured: at most workers and the largest batch."""
    counts = Counter((row["workers"], row["batch"]) for row in rows)
    workers, batch = max(counts, key=lambda place: (counts[place], *place))
    end = [row for row in rows if (row["workers"], row["batch"]) == (workers, batch)]
    best, worst = max(end, key=lambda row: row["value"]), min(end, key=lambda row: row["value"])
    text = f"at batch {batch} with {words.plural(workers, 'worker')}, "
    if best["format"] == worst["format"]:
        return words.sentence(f"{text}only {best['format']} was measured ({words.number(best['value'])} samples/s)")
    text += (
        f"{best['format']} brings {words.number(best['value'])} samples/s "
        f"({words.interval(best['lo'], best['hi'], best['n'])}), "
        f"{words.times(best['value'] / worst['value'])} what {worst['format']} does"
    )
    if words.known(best["lo"]) and words.known(worst["hi"]) and best["lo"] <= worst["hi"]:
        text += "; their intervals overlap"
    return words.sentence(text)
