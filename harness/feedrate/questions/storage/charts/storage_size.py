"""Bytes on disk against throughput: what a format costs in space for what it gives in speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts import format_panels as storage
from feedrate.charts.figure import Figure, Panel, Row, Sheet, data, listed, sized
from feedrate.charts.figure import plain as value_of
from feedrate.charts.marks import logarithmic
from feedrate.charts.theme import colour
from feedrate.schema import words

TITLE = "Bytes on disk against throughput"
QUESTION = "How much speed does a smaller format cost?"
READS = "trials"
COLUMNS = {
    "format": "format",
    "stores": "stores",
    "page_cache": "state",
    "bytes per sample": "bytes",
    "share of raw pixels": "share",
    "samples per s": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
}
NAME_WIDE, NAME_HIGH = 0.25, 0.3
"""About what a name takes of a panel: a share of raw pixels, and a step in the logarithm of throughput."""
SAME_SIZE = 0.02
"""Formats whose sizes differ by less are equally small: a header more or less is no reason to choose."""


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a mark a format; those that no other beats in both, without loss, are named."""
    shown: list[dict[str, Any]] = []

    def panel(part: storage.Part, sheet: Sheet) -> None:
        rows = _rows(part)
        if len({row["format"] for row in rows}) < 2:
            return
        shown.extend(rows)
        chart = sized(_layers(rows), part.title, part.subtitle, 300)
        sheet.add(Panel(part.title, part.subtitle, _message(rows), chart), listed(rows, part.row(), COLUMNS), part.held)

    sheet = storage.sheet_of(TITLE, QUESTION, storage.loads(trials), panel)
    if sheet.panels:
        sheet.note(
            "Named are formats than which none is smaller and faster, where there is room. Raw pixels take a byte a "
            "channel."
        )
    return storage.closed(sheet, shown, "The size on disk of fewer than two formats is known.")


def _rows(part: storage.Part) -> list[dict[str, Any]]:
    sizes = {
        (str(cell["storage_format"]), str(cell["page_cache"])): (
            value_of(cell["sample_bytes"]),
            value_of(cell["raw_share"]),
        )
        for cell in rows_of(part.frame)
    }
    rows = []
    for row in storage.drawn(part, "samples_per_s", "lo", "hi"):
        size, share = sizes[row["format"], row["state"]]
        if size is not None and share is not None:
            rows.append({**row, "bytes": float(size), "share": float(share)})
    front = {row["format"] for row in _apart(_front(rows))}
    state = part.states[0]
    return [{**row, "name": row["format"] if row["format"] in front and row["state"] == state else ""} for row in rows]


def _front(rows: Sequence[Row]) -> list[Row]:
    """Of the state that comes first, the formats that none beats in size and speed; smallest first."""
    states = [row["state"] for row in rows]
    part = [row for row in rows if row["state"] == ("warm" if "warm" in states else "cold")]
    kept: list[Row] = []
    for row in sorted(part, key=lambda row: (row["bytes"], -row["value"])):
        if kept and row["value"] <= kept[-1]["value"]:
            continue
        if kept and row["bytes"] <= kept[-1]["bytes"] * (1 + SAME_SIZE):
            kept.pop()
        kept.append(row)
    return kept


def _apart(front: Sequence[Row]) -> list[Row]:
    """Of a front, the rows whose names do not lie on one another; the faster of two keeps its name."""
    kept: list[Row] = []
    for row in reversed(front):
        near = [
            other
            for other in kept
            if abs(other["share"] - row["share"]) < NAME_WIDE
            and abs(math.log(other["value"] / row["value"])) < NAME_HIGH
        ]
        if not near:
            kept.append(row)
    return kept


def _layers(rows: Sequence[Row]) -> list[alt.Chart]:
    most = max(1.0, *(row["share"] for row in rows)) * 1.08
    x: dict[str, Any] = {
        "title": "bytes on disk ÷ bytes of raw pixels",
        "scale": alt.Scale(domain=[0, most], nice=False),
        "axis": alt.Axis(tickCount=5, format=".0%", grid=True, domain=False),
    }
    y = alt.Y("value:Q", **logarithmic(rows, "samples per second", room=1.5))
    shown = ("format", "stores", "state", "bytes", "share", "value", "lo", "hi", "n", "name")
    base = alt.Chart(data(rows, *shown)).encode(y=y, x=alt.X("share:Q", **x))
    named = base.transform_filter("datum.name != ''").encode(text=alt.Text("name:N"))
    style: dict[str, Any] = {"fontSize": 11, "color": colour("ink")}
    return [
        base.mark_point(filled=True, size=55, opacity=0.9).encode(
            color=storage.tone(rows),
            shape=storage.mark(),
            tooltip=[
                alt.Tooltip("format:N"),
                alt.Tooltip("stores:N"),
                alt.Tooltip("state:N", title="page cache"),
                alt.Tooltip("bytes:Q", title="bytes per sample", format=",.0f"),
                alt.Tooltip("share:Q", title="of raw pixels", format=".1%"),
                alt.Tooltip("value:Q", title="samples per second", format=",.4~g"),
                alt.Tooltip("lo:Q", title="low", format=",.4~g"),
                alt.Tooltip("hi:Q", title="high", format=",.4~g"),
                alt.Tooltip("n:Q", title="blocks"),
            ],
        ),
        named.transform_filter(f"datum.share < {most / 2:.3f}").mark_text(align="left", dx=-4, dy=-9, **style),
        named.transform_filter(f"datum.share >= {most / 2:.3f}").mark_text(align="right", dx=4, dy=-9, **style),
    ]


def _message(rows: Sequence[Row]) -> str:
    """Compare the fastest with the smallest of those on the front."""
    front = _front(rows)
    small, fast = front[0], front[-1]
    text = f"{fast['state']}, the fastest is {fast['format']} at {words.number(fast['bytes'] / 1000)} kB a sample"
    if small["format"] == fast["format"]:
        return words.sentence(f"{text}, and none is smaller")
    lossy = " (lossy)" if "lossy" in small["stores"] else ""
    return words.sentence(
        f"{text} ({words.percent(fast['share'])} of raw pixels); {small['format']}{lossy} takes "
        f"{words.number(small['bytes'] / 1000)} kB ({words.percent(small['share'])}) and does "
        f"{words.number(small['value'])} samples/s ({words.interval(small['lo'], small['hi'], small['n'])}), "
        f"{words.percent(small['value'] / fast['value'])} of the fastest"
    )
