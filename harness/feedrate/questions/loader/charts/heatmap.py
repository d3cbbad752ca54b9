"""Throughput of every batch size and worker count at a glance, with its numbers."""

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
from feedrate.charts.theme import HEAT_STEPS, colour
from feedrate.schema import words

TITLE = "Batch size and workers together"
QUESTION = "Which combination of batch size and workers is fastest, and by how much?"


def draw(cells: pd.DataFrame) -> Figure:
    """Draw the heat map; panels with a single combination are left out, as there is nothing to compare in them."""
    sheet = Sheet(TITLE, QUESTION)
    for part in slices(cells, (TRAIN, EMULATED, LOAD)):
        frame, kept = held(part.frame, ("batch_size", "num_workers"))
        if len(frame) < 2:
            continue
        rows = _rows(frame)
        columns = COLUMNS | {"share of the panel's best": "share"}
        sheet.add(_panel(part, rows), listed(rows, part.row(), columns), kept)
    if sheet.panels:
        sheet.note(
            "Large: samples per second. Small: half of the 95 % interval, in per cent; no number after ± means "
            "that one block gives no interval. Colour: share of the best in its panel."
        )
    return sheet.figure(_keys(), "Nothing to compare: fewer than two pairs of batch size and workers ended well.")


def _keys() -> list[Key]:
    edges = [round(100 * step / HEAT_STEPS) for step in range(HEAT_STEPS + 1)]
    return [
        Key(f"{edges[step]} to {edges[step + 1]} % of the best", colour(f"heat-{step}")) for step in range(HEAT_STEPS)
    ]


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    best = float(frame["samples_per_s"].max())
    rows = []
    for cell in rows_of(frame.sort_values(["batch_size", "num_workers"])):
        value, lo, hi = float(cell["samples_per_s"]), plain(cell["lo"]), plain(cell["hi"])
        half = f"± {50 * (hi - lo) / value:.1f} %" if lo is not None and hi is not None else "± ?"
        step = min(HEAT_STEPS - 1, int(HEAT_STEPS * value / best))
        rows.append(
            {
                "batch": int(cell["batch_size"]),
                "workers": int(cell["num_workers"]),
                "value": value,
                "lo": lo,
                "hi": hi,
                "n": int(cell["n"]),
                "share": value / best,
                "step": step,
                "text": words.number(value),
                "half": half,
            }
        )
    return rows


def _panel(part: Slice, rows: Sequence[Row]) -> Panel:
    batches = sorted({row["batch"] for row in rows})
    columns = len({row["workers"] for row in rows})
    base = alt.Chart(table(rows)).encode(
        x=alt.X("workers:O", title="workers", axis=alt.Axis(labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("batch:O", title="batch size", sort=batches),
        tooltip=[
            alt.Tooltip("batch:O", title="batch size"),
            alt.Tooltip("workers:O", title="workers"),
            alt.Tooltip("value:Q", title="samples per second", format=",.4~g"),
            alt.Tooltip("lo:Q", title="low", format=",.4~g"),
            alt.Tooltip("hi:Q", title="high", format=",.4~g"),
            alt.Tooltip("n:Q", title="blocks"),
        ],
    )
    ink = alt.condition(alt.datum.step >= 3, alt.value(colour("paper")), alt.value(colour("ink")))
    tiles = base.mark_rect(stroke=colour("paper"), strokeWidth=2).encode(
        color=alt.Color(
            "step:O",
            legend=None,
            scale=alt.Scale(
                domain=list(range(HEAT_STEPS)), range=[colour(f"heat-{step}") for step in range(HEAT_STEPS)]
            ),
        )
    )
    size = 14 if columns <= 3 else 11 if columns <= 5 else 9
    layers = [
        tiles,
        base.mark_text(fontSize=size, fontWeight="bold", dy=-6).encode(text=alt.Text("text:N"), color=ink),
        base.mark_text(fontSize=max(8, size - 3), dy=9).encode(text=alt.Text("half:N"), color=ink),
    ]
    return Panel(
        part.title, part.subtitle, _message(rows), sized(layers, part.title, part.subtitle, 96 + 46 * len(batches))
    )


def _message(rows: Sequence[Row]) -> str:
    best, worst = max(rows, key=lambda row: row["value"]), min(rows, key=lambda row: row["value"])
    return words.sentence(
        f"the fastest is batch {best['batch']} with {words.plural(best['workers'], 'worker')}, "
        f"{words.number(best['value'])} samples/s ({words.interval(best['lo'], best['hi'], best['n'])}); the slowest, "
        f"batch {worst['batch']} with {words.plural(worst['workers'], 'worker')}, comes to "
        f"{words.number(worst['value'])} ({words.percent(worst['value'] / best['value'])} of it)"
    )
