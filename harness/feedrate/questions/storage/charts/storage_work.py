"""What a loader does for a sample, by format: shares of reading, decoding, transforming and collating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts import format_panels as storage
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, data, sized
from feedrate.charts.figure import plain as value_of
from feedrate.charts.marks import height
from feedrate.charts.theme import STAGE_COLOURS, colour
from feedrate.schema import words
from feedrate.schema.columns import WORKER_STAGES

TITLE = "Where a sample’s loading goes"
QUESTION = "What does the loader spend its time on, and how much of it?"
READS = "trials"
TONES = STAGE_COLOURS


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a bar a format, the time of a sample beside it."""

    def panel(part: storage.Part, sheet: Sheet) -> None:
        for state in part.states:
            rows = _rows(part, state)
            if rows:
                subtitle = f"{part.subtitle}, {state}"
                chart = sized(_layers(rows), part.title, subtitle, height(len(rows) // 4, 17))
                sheet.add(Panel(part.title, subtitle, _message(rows), chart), _wide(part, state, rows), part.held)

    sheet = storage.sheet_of(TITLE, QUESTION, storage.loads(trials), panel)
    if sheet.panels:
        sheet.note("Medians over trials of the loader’s own wall clock, its queues left out.")
    legend = [Key(stage, TONES[stage]) for stage in WORKER_STAGES]
    return sheet.figure(legend, "No loader’s stages were stamped here.")


def _rows(part: storage.Part, state: str) -> list[dict[str, Any]]:
    """One row a stage of a format, those with the least total first."""
    bars = []
    for cell in rows_of(part.frame[part.frame["page_cache"].eq(state)]):
        costs = [value_of(cell[f"{stage}_us_per_sample"]) for stage in WORKER_STAGES]
        if all(cost is not None for cost in costs) and sum(costs):
            bars.append((sum(costs), str(cell["storage_format"]), costs, int(cell["n"])))
    return [
        {
            "format": name,
            "order": place,
            "stage": stage,
            "us": float(costs[place]),
            "share": costs[place] / total,
            "total": float(total),
            "text": f"{words.number(total)} µs" if total < 1000 else f"{words.number(total / 1000)} ms",
            "n": n,
        }
        for total, name, costs, n in sorted(bars)
        for place, stage in enumerate(WORKER_STAGES)
    ]


def _layers(rows: Sequence[Row]) -> list[alt.Chart]:
    names = list(dict.fromkeys(row["format"] for row in rows))
    y = alt.Y("format:N", sort=names, title=None, axis=alt.Axis(ticks=False, domain=False))
    x_axis = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".0%", grid=False)
    scale = alt.Scale(domain=[0, 1.27], nice=False)
    base = alt.Chart(data(rows, "format", "order", "stage", "us", "share", "text", "n")).encode(y=y)
    bars = base.mark_bar(stroke=colour("paper"), strokeWidth=0.5).encode(
        x=alt.X("share:Q", stack="zero", title="share of a sample’s loading, and its time", axis=x_axis, scale=scale),
        color=alt.Color("stage:N", title=None, scale=alt.Scale(domain=list(TONES), range=list(TONES.values()))),
        order=alt.Order("order:Q"),
        tooltip=[
            alt.Tooltip("format:N"),
            alt.Tooltip("stage:N"),
            alt.Tooltip("us:Q", title="µs per sample", format=",.3~g"),
            alt.Tooltip("share:Q", format=".1%"),
            alt.Tooltip("n:Q", title="blocks"),
        ],
    )
    totals = (
        base.transform_filter("datum.order === 0")
        .mark_text(align="right", fontSize=10, color=colour("ink"))
        .encode(x=alt.XDatum(1.265, type="quantitative"), text=alt.Text("text:N"))
    )
    return [bars, totals]


def _wide(part: storage.Part, state: str, rows: Sequence[Row]) -> list[Row]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        line = found.setdefault(
            row["format"],
            {**part.row(), "format": row["format"], "page_cache": state, "total (us)": row["total"], "n": row["n"]},
        )
        line[f"{row['stage']} (us)"] = row["us"]
    return list(found.values())


def _message(rows: Sequence[Row]) -> str:
    """Set the format with the cheapest samples against the one with the dearest."""
    said = []
    for name, text in ((rows[0]["format"], "least"), (rows[-1]["format"], "most")):
        part = [row for row in rows if row["format"] == name]
        most = max(part, key=lambda row: row["share"])
        share = words.percent(most["share"])
        said.append(f"{text}: {name}, {part[0]['text']} a sample, of which {share} is {most['stage']}")
    return words.sentence("; ".join(said if rows[0]["format"] != rows[-1]["format"] else said[:1]))
