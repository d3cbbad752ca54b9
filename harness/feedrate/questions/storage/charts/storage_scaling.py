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
from feedrate.charts.figure import RATE, Figure, Key, Panel, Row, Sheet, data, estimate, interval, listed, plain
from feedrate.charts.marks import BLOCKS, Fields, height, hover, names, rate, tiles
from feedrate.charts.theme import HEAT_STEPS, colour
from feedrate.questions.storage import panels
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
    **RATE,
    "times the fewest workers": "times",
    "times low": "times_lo",
    "times high": "times_hi",
}


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a tile a format and worker count, warm and cold in panels of their own."""
    added = [*KEYS, "base_workers", "speedup", "speedup_lo", "speedup_hi"]
    speedups = scaling(trials)[added] if len(trials) else pd.DataFrame()

    def panel(part: panels.Part, sheet: Sheet) -> None:
        frame = part.frame.merge(speedups, on=list(KEYS), how="left")
        for state in part.states:
            rows = _rows(frame[frame["page_cache"].eq(state)])
            if len({row["workers"] for row in rows}) > 1:
                subtitle, size = f"{part.subtitle}, {state}", height(len({row["format"] for row in rows}), 27)
                panel = Panel.draw(part.title, subtitle, _message(rows), _layers(rows), size)
                sheet.add(panel, listed(rows, part.row(), COLUMNS), part.held)

    parts = panels.parts(trials, free=("num_workers", "prefetch_factor"))
    sheet = panels.sheet_of(TITLE, QUESTION, parts, panel)
    sheet.note(
        "Large: samples per second. Small: times the fewest workers of the same format, paired block by block, "
        "with half of its 95 % interval."
    )
    steps = [f"under {EDGES[0]:g}", *(f"{a:g} to {b:g}" for a, b in pairwise(EDGES)), f"over {EDGES[-1]:g}"]
    legend = [Key(f"{text} times", colour(f"heat-{step}")) for step, text in enumerate(steps)]
    return sheet.figure(legend, "Every format was measured with one number of workers only.")


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A row a format and worker count, with the smallest prefetch_factor that was measured."""
    rows = []
    ordered = frame.sort_values(["num_workers", "prefetch_factor"])
    for cell in rows_of(ordered.drop_duplicates(["storage_format", "num_workers"])):
        times, lo, hi = (plain(cell[name]) for name in ("speedup", "speedup_lo", "speedup_hi"))
        first = cell["num_workers"] == cell["base_workers"]
        half = f" ± {(hi - lo) / 2:.2f}" if lo is not None and hi is not None and not first else ""
        rows.append(
            {
                "format": str(cell["storage_format"]),
                "state": str(cell["page_cache"]),
                "workers": int(cell["num_workers"]),
                **estimate(cell),
                "times": times,
                "times_lo": lo,
                "times_hi": hi,
                "base": plain(cell["base_workers"]),
                "step": min(HEAT_STEPS - 1, sum((times or 0.0) >= edge for edge in EDGES)),
                "text": words.number(float(cell["samples_per_s"])),
                "small": "" if times is None or first else f"× {times:.2f}{half}",
            }
        )
    return rows


def _layers(rows: Sequence[Row]) -> list[alt.Chart]:
    fastest = {row["format"]: row["value"] for row in sorted(rows, key=lambda row: float(row["value"]))}
    order = sorted(fastest, key=lambda name: (-fastest[name], name))
    fields = ("format", "workers", "value", "lo", "hi", "times", "n", "step", "text", "small")
    tooltip: Fields = {"format:N": "", "workers:O": "", **rate("samples per second")}
    base = alt.Chart(data(rows, *fields)).encode(
        y=names("format", order),
        tooltip=hover({**tooltip, "times:Q": ("times the fewest", ".3~g"), **BLOCKS}),
    )
    wide = len({row["workers"] for row in rows}) <= 4
    return tiles(base, "small", 1.5, (11, 8.5) if wide else (9, 7), (-5, 7))


def _message(rows: Sequence[Row]) -> str:
    """Name the formats that gain most and least at the largest number of workers."""
    workers, fewest = max(row["workers"] for row in rows), min(row["workers"] for row in rows)
    end = [row for row in rows if (row["workers"], row["base"]) == (workers, fewest) and row["times"] is not None]
    if not end:
        return words.sentence(f"no format was measured in the same blocks with fewer workers and with {workers}")
    most, least = (pick(end, key=lambda row: row["times"]) for pick in (max, min))
    text = (
        f"with {words.plural(workers, 'worker')}, {most['format']} does {words.times(most['times'])} what it does with "
        f"{fewest} ({interval(most, 'times_lo', 'times_hi')})"
    )
    if least["format"] != most["format"]:
        spread = interval(least, "times_lo", "times_hi")
        text += f"; {least['format']}, which gains least, {words.times(least['times'])} ({spread})"
    return words.sentence(text)
