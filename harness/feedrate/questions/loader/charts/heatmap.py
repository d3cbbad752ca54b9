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
    estimate,
    held,
    interval,
    listed,
    slices,
    table,
)
from feedrate.charts.marks import BLOCKS, hover, rate, tiles
from feedrate.charts.theme import HEAT_STEPS, colour
from feedrate.schema import words

TITLE = "Batch size and workers together"
QUESTION = "Which combination of batch size and workers is fastest, and by how much?"


def draw(cells: pd.DataFrame) -> Figure:
    """Draw the heat map; panels with a single combination are left out, as there is nothing to compare in them."""
    sheet = Sheet(TITLE, QUESTION)
    columns = COLUMNS | {"share of the panel's best": "share"}
    for part in slices(cells, (TRAIN, EMULATED, LOAD)):
        frame, kept = held(part.frame, ("batch_size", "num_workers"))
        if len(frame) > 1:
            rows = _rows(frame)
            height = 96 + 46 * len({row["batch"] for row in rows})
            panel = Panel.draw(part.title, part.subtitle, _message(rows), _layers(rows), height)
            sheet.add(panel, listed(rows, part.row(), columns), kept)
    sheet.note(
        "Large: samples per second. Small: half of the 95 % interval, in per cent; no number after ± means "
        "that one block gives no interval. Colour: share of the best in its panel."
    )
    edges = [round(100 * step / HEAT_STEPS) for step in range(HEAT_STEPS + 1)]
    legend = [
        Key(f"{edges[step]} to {edges[step + 1]} % of the best", colour(f"heat-{step}")) for step in range(HEAT_STEPS)
    ]
    return sheet.figure(legend, "Nothing to compare: fewer than two pairs of batch size and workers ended well.")


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    best = float(frame["samples_per_s"].max())
    rows = []
    for cell in rows_of(frame.sort_values(["batch_size", "num_workers"])):
        found = estimate(cell)
        value, lo, hi = found["value"], found["lo"], found["hi"]
        rows.append(
            {
                "batch": int(cell["batch_size"]),
                "workers": int(cell["num_workers"]),
                **found,
                "share": value / best,
                "step": min(HEAT_STEPS - 1, int(HEAT_STEPS * value / best)),
                "text": words.number(value),
                "half": f"± {50 * (hi - lo) / value:.1f} %" if lo is not None and hi is not None else "± ?",
            }
        )
    return rows


def _layers(rows: Sequence[Row]) -> list[alt.Chart]:
    tooltip = hover({"batch:O": "batch size", "workers:O": "workers", **rate("samples per second"), **BLOCKS})
    y = alt.Y("batch:O", title="batch size", sort=sorted({row["batch"] for row in rows}))
    columns = len({row["workers"] for row in rows})
    size = 14 if columns <= 3 else 11 if columns <= 5 else 9
    base = alt.Chart(table(rows)).encode(y=y, tooltip=tooltip)
    return tiles(base, "half", 2, (size, max(8, size - 3)), (-6, 9))


def _message(rows: Sequence[Row]) -> str:
    best, worst = (pick(rows, key=lambda row: row["value"]) for pick in (max, min))
    return words.sentence(
        f"the fastest is batch {best['batch']} with {words.plural(best['workers'], 'worker')}, "
        f"{words.number(best['value'])} samples/s ({interval(best)}); the slowest, batch {worst['batch']} with "
        f"{words.plural(worst['workers'], 'worker')}, comes to {words.number(worst['value'])} "
        f"({words.percent(worst['value'] / best['value'])} of it)"
    )
