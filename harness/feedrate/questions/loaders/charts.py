"""Loaders side by side: what each delivers of the same batches, by the number of its workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pandas as pd

from feedrate.analysis.blocks import blocks_of, memoized
from feedrate.analysis.estimates import asked, cells, rows_of
from feedrate.analysis.measures import estimate_measures
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    ENDS,
    Figure,
    Held,
    Row,
    Sheet,
    Slice,
    chart,
    estimate,
    front,
    held,
    interval,
    listed,
    overlap,
    plain,
    slices,
    with_ends,
)
from feedrate.charts.plot import Plot, amount, frontier, keys, log, names, of_workers, unlike
from feedrate.charts.theme import SHAPES
from feedrate.schema import plugins, words
from feedrate.schema.axes import BY_NAME
from feedrate.schema.plugins import loader_traits

FREE = ("loader", "num_workers", "storage_format", "access")
_KINDS = (LOAD, EMULATED, TRAIN)
_OWN = str(BY_NAME["loader"].default)
DEFAULT = loader_traits(_OWN).title
"""PyTorch's loader, which others are held against."""
_MEMORY = {"memory (MiB)": "mib"}
_COLUMNS = {"loader": "loader", "workers": "workers", "samples per s": "value", **ENDS}
_COSTS = with_ends(f"÷ {DEFAULT}", "times") | {"CPU for 1,000 samples (s)": "cpu"} | _MEMORY
_COSTS |= {"first batch after (s)": "first"}
_MISSING = "No task of this run was loaded by two loaders."


@memoized
def compared(trials: pd.DataFrame) -> list[tuple[Slice, list[Row], Held]]:
    """Tasks that several loaders worked on: the slice, a row a cell (the fastest loader first), what is held still."""
    tasks = []
    every = cells(trials)
    costs = {row["cell_id"]: row for row in rows_of(estimate_measures(trials))}
    for subset in _alike(slices(every[asked(trials, every)], _KINDS)):
        frame, still = held(subset.frame, FREE)
        if frame["loader"].nunique() < 2:
            continue
        own = frame[frame["loader"].eq(_OWN)]
        usual = str((own if len(own) else frame)["storage_format"].mode()[0])
        rows = [_row(cell, costs[cell["cell_id"]], usual) for cell in rows_of(frame)]
        rows = _against_default(trials, rows)
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


def _row(cell: Row, cost: Row, usual: str) -> Row:
    """What a loader delivers, and what all its processes take for it."""
    workers, given = int(cell["num_workers"]), estimate(cell)
    main, others = (plain(cost[name]) for name in ("main_cpu_pct", "workers_cpu_pct"))
    startup_ms = plain(cost["startup_ms"])
    return {
        **{name: cell[name] for name in ("run_id", "cell_id", "storage_format")},
        "plugin": str(cell["loader"]),
        "is_default": cell["loader"] == _OWN and cell["storage_format"] == usual,
        "loader": named(cell, usual),
        "workers": workers,
        "who": words.plural(workers, "worker"),
        **given,
        "cpu": None if main is None else 10 * (main + (others or 0)) / given["value"],
        "mib": plain(cost["pss_peak_mib"]),
        "first": None if startup_ms is None else startup_ms / 1000,
    }


def _against_default(trials: pd.DataFrame, rows: Sequence[Row]) -> list[Row]:
    """Add each row's speed ÷ that of PyTorch's loader with as many workers, where that was measured."""
    default = {row["workers"]: row["cell_id"] for row in rows if row["is_default"]}
    pairs = [row for row in rows if not row["is_default"] and row["workers"] in default]
    runs, ids = [row["run_id"] for row in pairs], [row["cell_id"] for row in pairs]
    ratios = blocks_of(trials).ratios(runs, [default[row["workers"]] for row in pairs], ids)
    found = dict(zip(ids, rows_of(ratios), strict=True))
    ends = {"times": "ratio", "times_lo": "lo", "times_hi": "hi"}
    return [
        {**row, **{name: plain(found.get(row["cell_id"], {}).get(end)) for name, end in ends.items()}} for row in rows
    ]


def named(cell: Mapping[Any, Any], usual: str) -> str:
    """Name a cell's loader as its authors do, and the format where it is not that of PyTorch's."""
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
        sheet.add(panel, listed(rows, subset.row(), _COLUMNS | _COSTS), still)
    sheet.note(
        f"÷ {DEFAULT}: with as many workers, paired by repetition. CPU: of all processes. Memory: of all processes, "
        "shared pages in parts (PSS), after the window."
    )
    return sheet.figure(keys(looks), _MISSING)


def _message(rows: Sequence[Row]) -> str:
    """The fastest and the slowest loader, each with the workers that it is fastest with."""
    best = {row["loader"]: row for row in sorted(rows, key=itemgetter("value"))}
    slowest, *_, fastest = sorted(best.values(), key=itemgetter("value"))
    if overlap(fastest, slowest):
        ends = (f"{row['loader']} {words.number(row['value'])} ({interval(row)})" for row in (slowest, fastest))
        return f"Intervals of the ends overlap: {' to '.join(ends)} samples a second."
    return (
        f"Fastest: {fastest['loader']}, {fastest['who']}, {words.number(fastest['value'])} samples a second "
        f"({interval(fastest)}). Slowest: {slowest['loader']}, {words.number(slowest['value'])} ({interval(slowest)})."
    )


@chart("Memory against speed", "Which loader gives most speed for its memory?")
def loader_memory(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a mark a loader, with the workers that it is fastest with; a line joins those that none beats in both."""
    tasks = compared(trials)
    plugin = {row["loader"]: row["plugin"] for _, rows, _ in tasks for row in rows}
    tones = unlike(plugin.values(), plugins.names("feedrate.loaders"))
    looks = {name: (tones[plugin[name]][0], SHAPES[at % len(SHAPES)]) for at, name in enumerate(sorted(plugin))}
    for subset, rows, still in tasks:
        fastest = {row["loader"]: row for row in sorted(rows, key=itemgetter("value"))}.values()
        marks = [row for row in fastest if row["mib"] is not None]
        if len(marks) < 2:
            continue
        best = front(marks, "mib")
        sizes = [row["mib"] for row in marks]
        x = log("mib", "memory (MiB)", (min(sizes) / 1.25, max(sizes) * 1.25), ",.0f", grid=False)
        y = amount("value", "samples per second")
        line, named_ends = frontier(marks, best, x, y, "loader")
        plot = Plot(marks, x, y, "loader", looks, also={"who:N": ""}, behind=line, before=named_ends)
        panel = plot.panel(subset.title, subset.subtitle, _memory_message(best))
        sheet.add(panel, listed(marks, subset.row(), _MEMORY | _COLUMNS), still)
    sheet.note("Memory of all processes after the window, shared pages in parts (PSS). Up and left is better.")
    sheet.note("The dashed line joins loaders that none beats in both.")
    return sheet.figure(keys(looks), _MISSING)


def _memory_message(best: Sequence[Row]) -> str:
    """The leanest and the fastest of those that none beats in both."""
    points = [
        f"{row['loader']}, {words.number(row['mib'])} MiB, {words.number(row['value'])} samples/s" for row in best
    ]
    if len(points) == 1:
        return f"Least memory and most speed: {points[0]} ({interval(best[0])})."
    return f"Least memory: {points[0]} ({interval(best[0])}). Most speed: {points[-1]} ({interval(best[-1])})."
