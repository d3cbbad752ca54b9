"""How each format scales with workers: samples a second, and times what no workers do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import scaling
from feedrate.charts import format_panels as storage
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, data, listed, sized
from feedrate.charts.figure import plain as value_of
from feedrate.charts.marks import height
from feedrate.charts.theme import HEAT_STEPS, colour
from feedrate.schema import words

TITLE = "Scaling with workers, by format"
QUESTION = "Which formats gain from more workers, and by how much?"
READS = "trials"
EDGES = (1.0, 1.5, 2.0, 3.0)
"""Of the steps of colour, times the base."""
COLUMNS = {
    "format": "format",
    "page_cache": "state",
    "num_workers": "workers",
    "samples per s": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
    "times the fewest workers": "times",
    "times low": "times_lo",
    "times high": "times_hi",
}


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a tile a format and worker count, warm and cold in panels of their own."""
    speedups = scaling(trials)[[*KEYS, "base_workers", "speedup", "speedup_lo", "speedup_hi"]] if len(trials) else None

    def panel(part: storage.Part, sheet: Sheet) -> None:
        if speedups is None:
            return
        frame = part.frame.merge(speedups, on=list(KEYS), how="left")
        for state in part.states:
            rows = _rows(frame[frame["page_cache"].eq(state)])
            if len({row["workers"] for row in rows}) < 2:
                continue
            subtitle = f"{part.subtitle}, {state}"
            count = len({row["format"] for row in rows})
            chart = sized(_layers(rows), part.title, subtitle, height(count, 27))
            sheet.add(Panel(part.title, subtitle, _message(rows), chart), listed(rows, part.row(), COLUMNS), part.held)

    parts = storage.parts(trials, free=("num_workers", "prefetch_factor"))
    sheet = storage.sheet_of(TITLE, QUESTION, parts, panel)
    if sheet.panels:
        sheet.note(
            "Large: samples per second. Small: times the fewest workers of the same format, paired block by block, "
            "with half of its 95 % interval."
        )
    return sheet.figure(_keys(), "Every format was measured with one number of workers only.")


def _keys() -> list[Key]:
    said = [
        f"under {EDGES[0]:g}",
        *(f"{a:g} to {b:g}" for a, b in pairwise(EDGES)),
        f"over {EDGES[-1]:g}",
    ]
    return [Key(f"{text} times", colour(f"heat-{step}")) for step, text in enumerate(said)]


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    ordered = frame.sort_values(["num_workers", "prefetch_factor"])
    for cell in rows_of(ordered.drop_duplicates(["storage_format", "num_workers"])):
        times, lo, hi = (value_of(cell[name]) for name in ("speedup", "speedup_lo", "speedup_hi"))
        first = cell["num_workers"] == cell["base_workers"]
        half = f" ± {(hi - lo) / 2:.2f}" if lo is not None and hi is not None and not first else ""
        rows.append(
            {
                "format": str(cell["storage_format"]),
                "state": str(cell["page_cache"]),
                "workers": int(cell["num_workers"]),
                "value": float(cell["samples_per_s"]),
                "lo": value_of(cell["lo"]),
                "hi": value_of(cell["hi"]),
                "n": int(cell["n"]),
                "times": times,
                "times_lo": lo,
                "times_hi": hi,
                "base": value_of(cell["base_workers"]),
                "step": min(HEAT_STEPS - 1, sum((times or 0.0) >= edge for edge in EDGES)),
                "text": words.number(float(cell["samples_per_s"])),
                "small": "" if times is None or first else f"× {times:.2f}{half}",
            }
        )
    return rows


def _layers(rows: Sequence[Row]) -> list[alt.Chart]:
    fastest = {row["format"]: row["value"] for row in sorted(rows, key=lambda row: float(row["value"]))}
    names = sorted(fastest, key=lambda name: (-fastest[name], name))
    shown = ("format", "workers", "value", "lo", "hi", "times", "n", "step", "text", "small")
    base = alt.Chart(data(rows, *shown)).encode(
        x=alt.X("workers:O", title="workers", axis=alt.Axis(labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("format:N", title=None, sort=names, axis=alt.Axis(ticks=False, domain=False)),
        tooltip=[
            alt.Tooltip("format:N"),
            alt.Tooltip("workers:O"),
            alt.Tooltip("value:Q", title="samples per second", format=",.4~g"),
            alt.Tooltip("lo:Q", title="low", format=",.4~g"),
            alt.Tooltip("hi:Q", title="high", format=",.4~g"),
            alt.Tooltip("times:Q", title="times the fewest", format=".3~g"),
            alt.Tooltip("n:Q", title="blocks"),
        ],
    )
    ink = alt.condition(alt.datum.step >= 3, alt.value(colour("paper")), alt.value(colour("ink")))
    steps = list(range(HEAT_STEPS))
    tones = alt.Scale(domain=steps, range=[colour(f"heat-{step}") for step in steps])
    wide = len({row["workers"] for row in rows}) <= 4
    layers = [
        base.mark_rect(stroke=colour("paper"), strokeWidth=1.5).encode(
            color=alt.Color("step:O", legend=None, scale=tones)
        ),
        base.mark_text(fontSize=11 if wide else 9, fontWeight="bold", dy=-5).encode(text=alt.Text("text:N"), color=ink),
    ]
    return [
        *layers,
        base.mark_text(fontSize=8.5 if wide else 7, dy=7).encode(text=alt.Text("small:N"), color=ink),
    ]


def _message(rows: Sequence[Row]) -> str:
    """Name the formats that gain most and least at the largest number of workers."""
    workers, fewest = max(row["workers"] for row in rows), min(row["workers"] for row in rows)
    end = [row for row in rows if (row["workers"], row["base"]) == (workers, fewest) and row["times"] is not None]
    if not end:
        return words.sentence(f"no format was measured in the same blocks with fewer workers and with {workers}")
    most, least = max(end, key=lambda row: row["times"]), min(end, key=lambda row: row["times"])
    text = (
        f"with {words.plural(workers, 'worker')}, {most['format']} does {words.times(most['times'])} what it does with "
        f"{fewest} ({words.interval(most['times_lo'], most['times_hi'], most['n'])})"
    )
    if least["format"] != most["format"]:
        text += (
            f"; {least['format']}, which gains least, {words.times(least['times'])} "
            f"({words.interval(least['times_lo'], least['times_hi'], least['n'])})"
        )
    return words.sentence(text)
