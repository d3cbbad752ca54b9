"""Scaling with workers: throughput, and how much of each further worker arrives.

For each task throughput against the number of workers, and the speed-up over the fewest workers divided by how many
times as many processes load (none counts as one: the training process loads itself). Real training, an emulated step
and loading alone stand apart. It does not show what a machine with more cores would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimates import cells, rows_of
from feedrate.analysis.storage import credible, scaling
from feedrate.charts import workers as lines
from feedrate.charts.figure import (
    EMULATED,
    LOAD,
    TRAIN,
    Figure,
    Key,
    Sheet,
    Slice,
    held,
    listed,
    numbers,
    plain,
    slices,
)
from feedrate.charts.theme import SHAPES, colour, series
from feedrate.charts.workers import Looks
from feedrate.schema import words

TITLE = "Scaling with workers"
QUESTION = "How many workers pay, and how much of each further one arrives?"
READS = "trials"
TASKS = 3
"""That are drawn; the others are in the table."""
LINES = 5
"""Of a task that are drawn: those with the most worker counts, of these the fastest."""
_KINDS = (EMULATED, LOAD, TRAIN)
_FREE = ("num_workers", "prefetch_factor")
_TIMES = {"times": "speedup", "times_lo": "speedup_lo", "times_hi": "speedup_hi"}
_ADDED = ("base_workers", *_TIMES.values(), "pairs")
_COLUMNS = {
    "line": "line",
    "num_workers": "workers",
    "samples per s": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
    "speed-up": "times",
    "speed-up: low": "times_lo",
    "speed-up: high": "times_hi",
    "over workers": "base",
    "efficiency": "share",
    "efficiency: low": "share_lo",
    "efficiency: high": "share_hi",
    "n of the speed-up": "pairs",
}
_MISSING = "Every setting was measured with one number of workers only."


def draw(trials: pd.DataFrame, cores: float | None = None) -> Figure:
    """Draw throughput and efficiency against the number of workers."""
    sheet = Sheet(TITLE, QUESTION)
    if not len(trials):
        return sheet.figure((), _MISSING)
    estimated = cells(credible(trials))
    found = estimated.merge(scaling(trials, estimated)[[*KEYS, *_ADDED]], on=list(KEYS), how="left")
    tasks = [(part, *_rows(part)) for part in slices(found, _KINDS)]
    tasks = _in_turn([(part, rows, still) for part, rows, still in tasks if rows])
    drawn = [(part, _fewer(rows)) for part, rows, _ in tasks[:TASKS]]
    looks = _looks(row["line"] for _, rows in drawn for row in rows)
    for part, rows, still in tasks:
        sheet.rows.extend(listed(rows, part.row(), _COLUMNS))
        sheet.held |= still
    for part, rows in drawn:
        sheet.panels += [panel(part, rows, looks, cores) for panel in (lines.throughput, lines.efficiency)]
    if sheet.panels:
        sheet.note(
            "Efficiency: speed-up over the fewest workers, paired by block, ÷ how many times as many processes load. "
            "No workers count as one process: the training process loads itself."
        )
        if any(part.kind != LOAD for part, _ in drawn):
            sheet.note("Before a step the speed-up ends where the step holds the loop back, however many workers load.")
        if (more := len(sheet.rows) - sum(len(rows) for _, rows in drawn)) > 0:
            sheet.note(f"The table has {words.plural(more, 'row')} more than the panels: further tasks and lines.")
    return sheet.figure([Key(name, *look) for name, look in looks.items()], _MISSING)


Task = tuple[Slice, list[dict[str, Any]], dict[str, Any]]


def _in_turn(tasks: Sequence[Task]) -> list[Task]:
    """Tasks with the most worker counts first; the first of each kind before the second of any."""
    ordered = sorted(tasks, key=lambda task: (-len(numbers(task[0].frame, "num_workers")), _KINDS.index(task[0].kind)))
    place: dict[str, int] = {}
    turns = []
    for task in ordered:
        kind = task[0].kind
        place[kind] = place.get(kind, -1) + 1
        turns.append(place[kind])
    return [task for _, task in sorted(zip(turns, ordered, strict=True), key=lambda pair: pair[0])]


def _rows(part: Slice) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row a mark, of lines with two worker counts or more: storage formats where there are several, else batches."""
    formats = part.frame["storage_format"].dropna().nunique() > 1
    axis = "storage_format" if formats else "batch_size"
    frame, still = held(part.frame, (*_FREE, axis))
    ordered = frame.sort_values(["num_workers", "prefetch_factor"]).drop_duplicates([axis, "num_workers"])
    several = ordered.groupby(axis)["num_workers"].transform("size").gt(1)
    found = rows_of(ordered[several].sort_values([axis, "num_workers"]))
    return [_row(cell, str(cell[axis]) if formats else f"batch {int(cell[axis])}") for cell in found], still


def _fewer(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the lines that tell most, so that marks stay apart."""
    rank: dict[str, tuple[int, float]] = {}
    for row in rows:
        count, best = rank.get(row["line"], (0, 0.0))
        rank[row["line"]] = count + 1, max(best, row["value"])
    kept = sorted(rank, key=lambda name: rank[name], reverse=True)[:LINES]
    return [row for row in rows if row["line"] in kept]


def _row(cell: Any, line: str) -> dict[str, Any]:
    """One mark: throughput, speed-up over the fewest workers, and that by processes."""
    base, workers = plain(cell["base_workers"]), int(cell["num_workers"])
    more = max(1, workers) / max(1, int(base)) if base is not None else None
    times = {key: plain(cell[column]) for key, column in _TIMES.items()}
    return {
        "line": line,
        "workers": workers,
        "value": float(cell["samples_per_s"]),
        "lo": plain(cell["lo"]),
        "hi": plain(cell["hi"]),
        "n": int(cell["n"]),
        **times,
        **{key.replace("times", "share"): value and more and value / more for key, value in times.items()},
        "base": base if base is None else int(base),
        "pairs": int(plain(cell["pairs"]) or 0),
    }


def _looks(names: Iterable[str]) -> Looks:
    """Colour and shape of each line, the same in every panel: formats by name, batch sizes by their order."""
    found = list(dict.fromkeys(names))
    batches = sorted((name for name in found if name.startswith("batch ")), key=lambda name: int(name.split()[1]))
    formats = sorted(name for name in found if name not in batches)
    tones = [f"series-{min(step, 6)}" for step in series(len(batches), has_zero=False)]
    tones += [f"name-{at % 7}" for at in range(len(formats))]
    return {
        name: (colour(tone), SHAPES[at % len(SHAPES)])
        for at, (name, tone) in enumerate(zip([*batches, *formats], tones, strict=True))
    }
