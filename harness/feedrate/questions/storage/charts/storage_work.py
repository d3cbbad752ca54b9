"""What a loader does for a sample, by format: shares of reading, decoding, transforming and collating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, data, plain
from feedrate.charts.marks import BLOCKS, Fields, height, hover, names, tone
from feedrate.charts.theme import STAGE_COLOURS, colour
from feedrate.questions.storage import panels
from feedrate.schema import words
from feedrate.schema.columns import WORKER_STAGES

TITLE = "Where a sample’s loading goes"
QUESTION = "What does the loader spend its time on, and how much of it?"
READS = "trials"


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a bar a format, the time of a sample beside it."""

    def panel(part: panels.Part, sheet: Sheet) -> None:
        for state in part.states:
            if rows := _rows(part, state):
                subtitle, size = f"{part.subtitle}, {state}", height(len(rows) // len(WORKER_STAGES), 17)
                panel = Panel.draw(part.title, subtitle, _message(rows), _layers(rows), size)
                sheet.add(panel, _table(part, state, rows), part.held)

    sheet = panels.sheet_of(TITLE, QUESTION, panels.loads(trials), panel)
    sheet.note("Medians over trials of the loader’s own wall clock, its queues left out.")
    legend = [Key(stage, STAGE_COLOURS[stage]) for stage in WORKER_STAGES]
    return sheet.figure(legend, "No loader’s stages were stamped here.")


def _rows(part: panels.Part, state: str) -> list[dict[str, Any]]:
    """One row a stage of a format, those with the least total first."""
    bars = []
    for cell in rows_of(part.frame[part.frame["page_cache"].eq(state)]):
        costs = [plain(cell[f"{stage}_us_per_sample"]) for stage in WORKER_STAGES]
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
    y = names("format", list(dict.fromkeys(row["format"] for row in rows)))
    base = alt.Chart(data(rows, "format", "order", "stage", "us", "share", "text", "n")).encode(y=y)
    tooltip: Fields = {"format:N": "", "stage:N": "", "us:Q": ("µs per sample", ",.3~g"), "share:Q": ("", ".1%")}
    bars = base.mark_bar(stroke=colour("paper"), strokeWidth=0.5).encode(
        x=alt.X(
            "share:Q",
            stack="zero",
            title="share of a sample’s loading, and its time",
            axis=alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".0%", grid=False),
            scale=alt.Scale(domain=[0, 1.27], nice=False),
        ),
        color=tone("stage", STAGE_COLOURS),
        order=alt.Order("order:Q"),
        tooltip=hover({**tooltip, **BLOCKS}),
    )
    totals = (
        base.transform_filter("datum.order === 0")
        .mark_text(align="right", fontSize=10, color=colour("ink"))
        .encode(x=alt.XDatum(1.265, type="quantitative"), text=alt.Text("text:N"))
    )
    return [bars, totals]


def _table(part: panels.Part, state: str, rows: Sequence[Row]) -> list[Row]:
    """A row a format, a column a stage."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        given = {"format": row["format"], "page_cache": state, "total (us)": row["total"], "n": row["n"]}
        found.setdefault(row["format"], {**part.row(), **given})[f"{row['stage']} (us)"] = row["us"]
    return list(found.values())


def _message(rows: Sequence[Row]) -> str:
    """Set the format with the cheapest samples against the one with the dearest."""
    parts = []
    for word, name in {"least": rows[0]["format"], "most": rows[-1]["format"]}.items():
        own = [row for row in rows if row["format"] == name]
        most = max(own, key=lambda row: row["share"])
        share = words.percent(most["share"])
        parts.append(f"{word}: {name}, {own[0]['text']} a sample, of which {share} is {most['stage']}")
    return words.sentence("; ".join(parts if rows[0]["format"] != rows[-1]["format"] else parts[:1]))
