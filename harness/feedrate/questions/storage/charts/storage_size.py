"""Bytes on disk against throughput: what a format costs in space for what it gives in speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.charts.figure import RATE, Figure, Panel, Row, Sheet, data, interval, listed
from feedrate.charts.marks import BLOCKS, Fields, hover, logarithmic, rate
from feedrate.charts.theme import colour
from feedrate.questions.storage import panels
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
    **RATE,
}
NAME_WIDE, NAME_HIGH = 0.25, 0.3
"""About what a name takes of a panel: a share of raw pixels, and a step in the logarithm of throughput."""
SAME_SIZE = 0.02
"""Formats whose sizes differ by less are equally small: a header more or less is no reason to choose."""


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a mark a format; those that no other beats in both, without loss, are named."""
    shown: list[Row] = []

    def panel(part: panels.Part, sheet: Sheet) -> None:
        rows = _rows(part)
        if len({row["format"] for row in rows}) > 1:
            shown.extend(rows)
            panel = Panel.draw(part.title, part.subtitle, _message(rows), _layers(rows), 300)
            sheet.add(panel, listed(rows, part.row(), COLUMNS), part.held)

    sheet = panels.sheet_of(TITLE, QUESTION, panels.loads(trials), panel)
    sheet.note(
        "Named are formats than which none is smaller and faster, where there is room. Raw pixels take a byte a "
        "channel."
    )
    return sheet.figure(panels.keys(shown), "The size on disk of fewer than two formats is known.")


def _rows(part: panels.Part) -> list[dict[str, Any]]:
    """A row a mark; in the state that comes first, those of the front are named, as long as names do not meet."""
    rows = [
        {**row, "bytes": float(row["bytes"]), "share": float(row["share"])}
        for row in panels.drawn(part)
        if row["bytes"] is not None and row["share"] is not None
    ]
    named: list[Row] = []
    for row in reversed(_front(rows)):  # the faster of two keeps its name
        if not any(
            abs(other["share"] - row["share"]) < NAME_WIDE and abs(math.log(other["value"] / row["value"])) < NAME_HIGH
            for other in named
        ):
            named.append(row)
    names = {row["format"] for row in named}
    first = part.states[0]
    return [{**row, "name": row["format"] if row["format"] in names and row["state"] == first else ""} for row in rows]


def _front(rows: Sequence[Row]) -> list[Row]:
    """Of the state that comes first, the formats that none beats in size and speed; smallest first."""
    own = next(iter(panels.by_state(rows).values()), [])
    kept: list[Row] = []
    for row in sorted(own, key=lambda row: (row["bytes"], -row["value"])):
        if kept and row["value"] <= kept[-1]["value"]:
            continue
        if kept and row["bytes"] <= kept[-1]["bytes"] * (1 + SAME_SIZE):
            kept.pop()
        kept.append(row)
    return kept


def _layers(rows: Sequence[Row]) -> list[alt.Chart]:
    most = max(1.0, *(row["share"] for row in rows)) * 1.08
    x = alt.X(
        "share:Q",
        title="bytes on disk ÷ bytes of raw pixels",
        scale=alt.Scale(domain=[0, most], nice=False),
        axis=alt.Axis(tickCount=5, format=".0%", grid=True, domain=False),
    )
    y = alt.Y("value:Q", **logarithmic(rows, "samples per second", room=1.5))
    fields = ("format", "stores", "state", "bytes", "share", "value", "lo", "hi", "n", "name")
    base = alt.Chart(data(rows, *fields)).encode(y=y, x=x)
    named = base.transform_filter("datum.name != ''").encode(text=alt.Text("name:N"))
    style: dict[str, Any] = {"dy": -9, "fontSize": 11, "color": colour("ink")}
    tooltip: Fields = {
        "format:N": "",
        "stores:N": "",
        "state:N": "page cache",
        "bytes:Q": ("bytes per sample", ",.0f"),
        "share:Q": ("of raw pixels", ".1%"),
        **rate("samples per second"),
        **BLOCKS,
    }
    return [
        base.mark_point(filled=True, size=55, opacity=0.9).encode(
            color=panels.stores_tone(rows),
            shape=panels.state_shape(),
            tooltip=hover(tooltip),
        ),
        named.transform_filter(f"datum.share < {most / 2:.3f}").mark_text(align="left", dx=-4, **style),
        named.transform_filter(f"datum.share >= {most / 2:.3f}").mark_text(align="right", dx=4, **style),
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
        f"{words.number(small['value'])} samples/s ({interval(small)}), "
        f"{words.percent(small['value'] / fast['value'])} of the fastest"
    )
