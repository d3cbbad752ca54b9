"""Loaders side by side: what each delivers of the same batches, by the number of its workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import asked, cells, rows_of
from feedrate.analysis.measures import estimate_measures
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    ENDS,
    Figure,
    Row,
    Sheet,
    Slice,
    chart,
    data,
    estimate,
    front,
    held,
    interval,
    listed,
    slices,
)
from feedrate.charts.plot import Looks, Plot, amount, keys, log, mark, names, of_workers, unlike, written
from feedrate.charts.theme import SHAPES, colour
from feedrate.schema import plugins, words
from feedrate.schema.plugins import loader_traits

APART = 1.5
"""Marks whose memory differs by more both have room for their names."""
FREE = ("loader", "num_workers", "storage_format", "access")
_KINDS = (LOAD, EMULATED, TRAIN)
_COLUMNS = {"loader": "loader", "workers": "workers", "samples per s": "value", **ENDS}
_MISSING = "No task of this run was loaded by two loaders."


def compared(trials: pd.DataFrame) -> list[tuple[Slice, list[Row], dict[str, Any]]]:
    """Tasks that several loaders worked on: the slice, a row a cell (the fastest loader first), what is held still."""
    tasks = []
    every = cells(trials)
    for subset in _alike(slices(every[asked(trials, every)], _KINDS)):
        frame, still = held(subset.frame, FREE)
        if frame["loader"].nunique() < 2:
            continue
        usual = str(frame["storage_format"].mode()[0])
        rows: list[Row] = [{**_row(cell), "loader": named(cell, usual)} for cell in rows_of(frame)]
        best = {row["loader"]: row["value"] for row in sorted(rows, key=itemgetter("value"))}
        rows.sort(key=lambda row: (-best[row["loader"]], row["loader"], row["workers"]))
        tasks.append((subset, rows, still))
    return tasks


def _alike(subsets: Iterable[Slice]) -> Iterator[Slice]:
    """Split where pixels are bytes for some loaders and floats for others: those are no batches of one kind."""
    for subset in subsets:
        frame = subset.frame[subset.frame["loader"].notna()]
        fast = frame["collate"].eq("fast")
        kinds = [(frame[fast], ", pixels as bytes"), (frame[~fast], ", pixels as floats")]
        if any(rows.empty for rows, _ in kinds):
            yield replace(subset, frame=frame)
        else:
            yield from (replace(subset, frame=rows, subtitle=subset.subtitle + kind) for rows, kind in kinds)


def _row(cell: Mapping[Any, Any]) -> dict[str, Any]:
    workers = int(cell["num_workers"])
    identity = {name: cell[name] for name in ("run_id", "cell_id", "storage_format")}
    who = {"plugin": str(cell["loader"]), "workers": workers, "who": words.plural(workers, "worker")}
    return {**identity, **who, **estimate(cell)}


def named(cell: Mapping[Any, Any], usual: str) -> str:
    """Name a cell's loader as its authors do, and the format where it is not that of the others."""
    trait, storage_format = loader_traits(str(cell["loader"])), str(cell["storage_format"])
    return trait.title if trait.streams or storage_format == usual else f"{trait.title}, {storage_format}"


@chart("Loaders side by side", "Which loader delivers samples fastest?")
def loader_rates(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw each loader's rate, a panel a task, a mark for each number of workers."""
    tasks = compared(trials)
    looks = of_workers(sorted({row["workers"] for _, rows, _ in tasks for row in rows}))
    for subset, rows, still in tasks:
        used = {row["who"] for row in rows}
        beside = "who", [who for who in looks if who in used]
        x, y = amount("value", "samples per second"), names("loader", (row["loader"] for row in rows))
        plot = Plot(rows, x, y, "who", looks, beside=beside)
        panel = plot.panel(subset.title, subset.subtitle, _message(rows))
        sheet.add(panel, listed(rows, subset.row(), _COLUMNS), still)
    return sheet.figure(keys(looks), _MISSING)


def _message(rows: Sequence[Row]) -> str:
    """The fastest and the slowest loader, each with the workers that it is fastest with."""
    best = {row["loader"]: row for row in sorted(rows, key=itemgetter("value"))}
    slowest, *_, fastest = sorted(best.values(), key=itemgetter("value"))
    return (
        f"Fastest: {fastest['loader']}, {fastest['who']}, {words.number(fastest['value'])} samples a second "
        f"({interval(fastest)}). Slowest: {slowest['loader']}, {words.number(slowest['value'])} ({interval(slowest)})."
    )


@chart("Memory against speed", "Which loader gives most speed for its memory?")
def loader_memory(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a mark a loader, with the workers that it is fastest with; a line joins those that none beats in both."""
    tasks = compared(trials)
    costs = {row["cell_id"]: row["pss_peak_mib"] for row in rows_of(estimate_measures(trials))} if tasks else {}
    plugin = {row["loader"]: row["plugin"] for _, rows, _ in tasks for row in rows}
    tones = unlike(plugin.values(), plugins.names("feedrate.loaders"))
    looks = {name: (tones[plugin[name]][0], SHAPES[at % len(SHAPES)]) for at, name in enumerate(sorted(plugin))}
    for subset, rows, still in tasks:
        fastest = {row["loader"]: row for row in sorted(rows, key=itemgetter("value"))}.values()
        marks = [
            {**row, "mib": float(costs[row["cell_id"]])} for row in fastest if words.is_number(costs[row["cell_id"]])
        ]
        if len(marks) < 2:
            continue
        best = front(marks, "mib")
        panel = _memory_plot(marks, best, looks).panel(subset.title, subset.subtitle, _memory_message(best))
        sheet.add(panel, listed(marks, subset.row(), {"memory (MiB)": "mib", **_COLUMNS}), still)
    sheet.note("Memory of all processes after the window, shared pages in parts (PSS). Up and left is better.")
    return sheet.figure(keys(looks), _MISSING)


def _memory_plot(marks: Sequence[Row], best: Sequence[Row], looks: Looks) -> Plot:
    """Marks, a line along the front, and names at its ends."""
    sizes = [row["mib"] for row in marks]
    x = log("mib", "memory (MiB)", (min(sizes) / 1.25, max(sizes) * 1.25), ",.0f", grid=False)
    y = amount("value", "samples per second")
    style = {"color": colour("muted"), "strokeDash": [3, 3], "strokeWidth": 1.25}
    joined = mark("line", data(best, "loader", "mib", "value"), style, **x.along("x"), **y.along("y"))
    left = best[-1]["mib"] < math.sqrt(min(sizes) * max(sizes))
    named = [written(best[-1:], x, y, "loader", right=left, dy=-8)]
    if best[-1]["mib"] > APART * best[0]["mib"]:
        named.append(written(best[:1], x, y, "loader", right=True, dy=16))
    return Plot(marks, x, y, "loader", looks, also={"who:N": ""}, behind=[joined], before=named)


def _memory_message(best: Sequence[Row]) -> str:
    """The leanest and the fastest of those that none beats in both."""
    points = [
        f"{row['loader']}, {words.number(row['mib'])} MiB, {words.number(row['value'])} samples/s" for row in best
    ]
    if len(points) == 1:
        return f"Least memory and most speed: {points[0]} ({interval(best[0])})."
    return f"Least memory: {points[0]} ({interval(best[0])}). Most speed: {points[-1]} ({interval(best[-1])})."
