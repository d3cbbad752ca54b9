"""How workers are named and drawn, and charts of what they bring and cost: scaling and start-up."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from feedrate.analysis import estimates
from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimate import Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.loader import HOW, startup
from feedrate.analysis.storage import credible, scaling
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    ENDS,
    MOST_PANELS,
    RATE,
    Figure,
    Held,
    Row,
    Sheet,
    Slice,
    chart,
    estimate,
    held,
    interval,
    listed,
    plain,
    point,
    slices,
    with_ends,
)
from feedrate.charts.plot import (
    Looks,
    Plot,
    amount,
    core_marks,
    counts,
    keys,
    limit_panels,
    log_of,
    names,
    of_workers,
    unlike,
)
from feedrate.charts.theme import SHAPES, colour
from feedrate.pages import descriptions
from feedrate.schema import plugins, words
from feedrate.schema.axes import AXES, BY_NAME
from feedrate.schema.plugins import loader_traits

LOOKS = {
    "no workers": (colour("name-6"), "cross"),
    "fork": (colour("name-0"), "circle"),
    "forkserver": (colour("name-2"), "triangle-up"),
    "spawn": (colour("name-1"), "diamond"),
    "threads": (colour("name-4"), "square"),
}
"""How workers begin, to colour and shape."""
_UNNAMED = (*("mode", "n_samples", "prefetch_factor", "workload", "storage_format", "patch_size", "batch_size"), *HOW)
"""Axes that every cell of a table shares, or that have a place of their own."""
_COLUMNS = {"line": "line", "num_workers": "workers", **RATE, **with_ends("speed-up", "times")}
_COLUMNS |= {"over workers": "base", "n of the speed-up": "pairs"}


def begin(cell: Mapping[Any, Any]) -> str:
    """Name how a cell's workers begin: a key of ``LOOKS``."""
    if not int(cell["num_workers"]):
        return "no workers"
    trait = loader_traits(str(cell["loader"]))
    if trait.workers == "threads":
        return "threads"
    if pd.isna(cell["start_method"]):
        return "spawn" if trait.spawns else "fork"
    return str(cell["start_method"])


def who(cell: Mapping[Any, Any]) -> str:
    """Name a cell's workers: ``2 workers, fork``, ``8 threads``, ``no workers``."""
    how, count = begin(cell), int(cell["num_workers"])
    if how == "no workers":
        return how
    name = words.plural(count, "thread") if how == "threads" else f"{words.plural(count, 'worker')}, {how}"
    return name if cell["loader"] in (BY_NAME["loader"].default, "threads") else f"{name}, {cell['loader']}"


def what(cell: Mapping[Any, Any], leave_out: Sequence[str] = ()) -> str:
    """Name what was loaded: workload, format, size, batch, and every other axis that is not at its default.

    ``cell`` has a value for every axis, null where it does not apply; ``leave_out`` are axes that are named elsewhere.
    """
    parts = [cell[name] for name in ("workload", "storage_format") if not pd.isna(cell[name])]
    parts += [] if pd.isna(cell["patch_size"]) else [f"{cell['patch_size']} px"]
    others = {axis.name: cell[axis.name] for axis in AXES if axis.name not in (*_UNNAMED, *leave_out)}
    return ", ".join(map(str, filter(None, (*parts, f"batch {cell['batch_size']}", descriptions.changed(others)))))


@chart("Scaling with workers", "When do more workers stop helping?")
def worker_scaling(sheet: Sheet, trials: pd.DataFrame, cores: float | None = None) -> Figure:
    """Draw throughput against the number of workers; ``cores`` are those of the machine."""
    tasks = [(subset, *_marks(subset)) for subset in slices(scaled_cells(trials), (EMULATED, LOAD, TRAIN))]
    tasks = [task for task in tasks if task[1]]
    tasks.sort(key=lambda task: -len({row["workers"] for row in task[1]}))  # the longest curves first
    looks = _line_looks({row["line"] for _, rows, _ in tasks[:MOST_PANELS] for row in rows})
    for subset, rows, still in tasks:
        numbered = [row["workers"] for row in rows]
        x, y = counts("workers", "workers", numbered), amount("value", "samples per second")
        plot = Plot(rows, x, y, "line", looks, joined=True, behind=core_marks([("", cores)], x, max(numbered)))
        panel = plot.panel(subset.title, f"{subset.subtitle}; {rows[0]['fixed']}", _throughput_message(rows))
        sheet.add(panel, listed(rows, subset.row(), _COLUMNS), still)
    if any(subset.kind != LOAD for subset, _, _ in tasks):
        sheet.note("With a step, the speed-up ends where the step becomes the bottleneck.")
    limit_panels(sheet)
    return sheet.figure(keys(looks), "Every setting was measured with one number of workers only.")


def scaled_cells(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate cells with their speed-up over the fewest workers, as ``analysis.storage.scaling`` gives it."""
    cells = estimates.cells(credible(trials))
    added = [*KEYS, "base_workers", "speedup", "speedup_lo", "speedup_hi", "pairs"]
    return cells.merge(scaling(trials, cells)[added], on=list(KEYS), how="left")


def speed_up(cell: Row) -> dict[str, Any]:
    """Give a cell's speed-up (``times``, ``times_lo``, ``times_hi``) and the workers that it is over (``base``)."""
    base = plain(cell["base_workers"])
    times = {f"times{end}": plain(cell[f"speedup{end}"]) for end in ("", "_lo", "_hi")}
    return {**times, "base": base if base is None else int(base)}


def _marks(subset: Slice) -> tuple[list[dict[str, Any]], Held]:
    """A mark a row, of lines with two worker counts or more: storage formats where there are several, else batches."""
    formats = subset.frame["storage_format"].dropna().nunique() > 1
    axis = "storage_format" if formats else "batch_size"
    frame, still = held(subset.frame, ("num_workers", "prefetch_factor", axis))
    ordered = frame.sort_values([axis, "num_workers", "prefetch_factor"]).drop_duplicates([axis, "num_workers"])
    several = ordered[ordered.groupby(axis)["num_workers"].transform("size").gt(1)]
    rows = []
    for cell in rows_of(several):
        line = str(cell[axis]) if formats else f"batch {int(cell[axis])}"
        fixed = f"batch {int(cell['batch_size'])}" if formats else str(plain(cell["storage_format"]) or "no files")
        rows.append(
            {**point(cell), "line": line, "fixed": fixed, **speed_up(cell), "pairs": int(plain(cell["pairs"]) or 0)}
        )
    return rows, {name: value for name, value in still.items() if name not in ("batch_size", "storage_format")}


def _line_looks(lines: Collection[str]) -> Looks:
    """Colour and shape of each line, the same in every panel: formats by name, batch sizes by their order."""
    batches = sorted((name for name in lines if name.startswith("batch ")), key=lambda name: int(name.split()[1]))
    ramp = zip(batches, of_workers(range(1, len(batches) + 1)).values(), strict=True)
    looks = {**dict(ramp), **unlike(sorted(set(lines) - set(batches)), plugins.names("feedrate.formats"))}
    return {name: (tint, SHAPES[at % len(SHAPES)]) for at, (name, (tint, _)) in enumerate(looks.items())}


def _throughput_message(rows: Sequence[Row]) -> str:
    """Name the fastest mark, and set it against the fewest workers of its line."""
    best = max(rows, key=lambda row: row["value"])
    return words.sentence(
        f"the fastest is {best['line']} with {words.plural(best['workers'], 'worker')}: {words.number(best['value'])} "
        f"samples/s ({interval(best)}){against_fewest(best)}"
    )


def against_fewest(mark: Row) -> str:
    """Write a mark's speed over that of its line's fewest workers (:func:`speed_up`); nothing where these are its."""
    if mark["times"] is None or mark["workers"] == mark["base"]:
        return ""
    low, high = (math.nan if mark[end] is None else mark[end] for end in ("times_lo", "times_hi"))
    return f", {Estimate(mark['times'], low, high, mark['n'], 'ratio').text()} the speed with {mark['base'] or 'none'}"


@chart("Starting workers", "How long do workers take to the first batch, by how they are started?")
def worker_startup(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a panel a setting, a line for each way to have workers."""
    columns = {"workers": "label", "started by": "begin", "first batch (ms)": "value", **ENDS}
    used = set[str]()
    for _, cells in startup(trials).groupby("setting", sort=False):
        rows = [{"label": who(cell), "begin": begin(cell), **estimate(cell, "startup_ms")} for cell in rows_of(cells)]
        used |= {row["begin"] for row in rows if len(sheet.panels) < MOST_PANELS}
        loaded = what(rows_of(cells)[0])
        title, _, subtitle = loaded.partition(", ")
        x, y = log_of(rows, "time to the first batch (ms)"), names("label", (row["label"] for row in rows))
        plot = Plot(rows, x, y, "begin", LOOKS)
        whole = subtitle.replace(" ", "\u00a0").replace(",\u00a0", ", ")  # lines end between parts alone
        lines = [line.rstrip(",").replace("\u00a0", " ") for line in textwrap.wrap(whole, 46)]
        panel = plot.panel(title, lines, _startup_message(rows))
        sheet.add(panel, listed(rows, {"what was loaded": loaded}, columns))
    limit_panels(sheet)
    sheet.note("The loader alone; the time contains the preparation of that batch. Means are geometric.")
    sheet.note("Intervals that reach the edge go on beyond it.")
    return sheet.figure(keys(LOOKS, used), "No two settings here differ in their workers only.")


def _startup_message(rows: Sequence[Row]) -> str:
    """Name the quickest and the slowest."""
    least, most = (pick(rows, key=lambda row: row["value"]) for pick in (min, max))
    return words.sentence(
        f"{least['label']}: {words.number(least['value'])} ms to the first batch ({interval(least)}); {most['label']}: "
        f"{words.number(most['value'])} ms ({interval(most)}), {words.times(most['value'] / least['value'])} as long"
    )
