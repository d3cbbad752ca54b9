"""How workers are named and drawn, and charts of what they bring and cost: scaling, start-up, memory."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from feedrate.analysis import estimates
from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimate import Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.loader import HOW, growth, startup
from feedrate.analysis.storage import credible, scaling
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    ENDS,
    MOST_PANELS,
    RATE,
    Figure,
    Row,
    Sheet,
    Slice,
    chart,
    estimate,
    held,
    interval,
    listed,
    numbers,
    plain,
    point,
    slices,
    with_ends,
)
from feedrate.charts.plot import (
    BLOCKS,
    Fields,
    Looks,
    Plot,
    amount,
    core_marks,
    counts,
    keys,
    log_of,
    names,
    of_workers,
    rate,
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
_ROOM = 4.0
"""How far a logarithmic axis goes beyond the outermost value; intervals that are longer are cut there."""
_UNNAMED = (*("mode", "n_samples", "prefetch_factor", "workload", "storage_format", "patch_size", "batch_size"), *HOW)
"""Axes that every cell of a table shares, or that have a place of their own."""


TASKS = 3
"""That are drawn; the others are in the table."""
LINES = 5
"""Of a task that are drawn: those with the most worker counts, of these the fastest."""
_KINDS = (EMULATED, LOAD, TRAIN)
_SCALING_COLUMNS = {"line": "line", "num_workers": "workers", **RATE, **with_ends("speed-up", "times")}
_SCALING_COLUMNS |= {"over workers": "base", "n of the speed-up": "pairs"}
_ONE_NUMBER = "Every setting was measured with one number of workers only."
_Task = tuple[Slice, list[dict[str, Any]], dict[str, Any]]
"""A slice, its marks, and the axes that are held still."""


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


def _rows_of_dots(rows: Sequence[Row], title: str, *, log: bool) -> Plot:
    """Declare a dot a row with its interval, in the rows' order, on a logarithmic side or on one that holds 0."""
    low, high = -math.inf, math.inf
    if log:
        low, high = min(row["value"] for row in rows) / _ROOM, max(row["value"] for row in rows) * _ROOM
    cut = [{**row, "from": row["lo"] and max(low, row["lo"]), "to": row["hi"] and min(high, row["hi"])} for row in rows]
    ends = ("from", "to")
    x = log_of(cut, title, ends=ends) if log else amount("value", title, "~g")
    y = names("label", (row["label"] for row in rows), grid=False)
    return Plot(cut, x, y, "begin", LOOKS, ends=ends)


@chart("Scaling with workers", "When do more workers stop helping?")
def worker_scaling(sheet: Sheet, trials: pd.DataFrame, cores: float | None = None) -> Figure:
    """Draw throughput against the number of workers; ``cores`` are those of the machine."""
    if not len(trials):
        return sheet.figure((), _ONE_NUMBER)
    tasks = _in_turn([task for subset in slices(scaled_cells(trials), _KINDS) if (task := _task(subset))[1]])
    for subset, rows, still in tasks:
        sheet.list(listed(rows, subset.row(), _SCALING_COLUMNS), still)
    drawn = [(subset, _fewer(rows)) for subset, rows, _ in tasks[:TASKS]]
    looks = _line_looks(list(dict.fromkeys(row["line"] for _, rows in drawn for row in rows)))
    for subset, rows in drawn:
        plot = _lines(rows, looks, cores)
        sheet.panels.append(plot.panel(subset.title, subset.subtitle, _throughput_message(rows)))
    if any(subset.kind != LOAD for subset, _ in drawn):
        sheet.note("With a step, the speed-up ends where the step becomes the bottleneck.")
    if (more := len(sheet.rows) - sum(len(rows) for _, rows in drawn)) > 0:
        sheet.note(f"The table has {words.plural(more, 'row')} more than the panels: further tasks and lines.")
    return sheet.figure(keys(looks), _ONE_NUMBER)


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


def _in_turn(tasks: Sequence[_Task]) -> list[_Task]:
    """Tasks with the most worker counts first; the first of each kind before the second of any."""
    ordered = sorted(tasks, key=lambda task: (-len(numbers(task[0].frame, "num_workers")), _KINDS.index(task[0].kind)))
    kinds = [task[0].kind for task in ordered]
    turns = [kinds[:index].count(kind) for index, kind in enumerate(kinds)]
    return [task for _, task in sorted(zip(turns, ordered, strict=True), key=lambda pair: pair[0])]


def _task(subset: Slice) -> _Task:
    """A mark a row, of lines with two worker counts or more: storage formats where there are several, else batches."""
    formats = subset.frame["storage_format"].dropna().nunique() > 1
    axis = "storage_format" if formats else "batch_size"
    frame, still = held(subset.frame, ("num_workers", "prefetch_factor", axis))
    ordered = frame.sort_values(["num_workers", "prefetch_factor"]).drop_duplicates([axis, "num_workers"])
    several = ordered.groupby(axis)["num_workers"].transform("size").gt(1)
    line = rows_of(ordered[several].sort_values([axis, "num_workers"]))
    return subset, [_mark(cell, str(cell[axis]) if formats else f"batch {int(cell[axis])}") for cell in line], still


def _mark(cell: Row, line: str) -> dict[str, Any]:
    """One mark: throughput, and speed-up over the fewest workers."""
    return {**point(cell), "line": line, **speed_up(cell), "pairs": int(plain(cell["pairs"]) or 0)}


def _fewer(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the lines that tell most, so that marks stay apart."""
    ranks = pd.DataFrame(rows).groupby("line")["value"].agg(["size", "max"])
    kept = set(ranks.sort_values(["size", "max"], ascending=False).index[:LINES])
    return [row for row in rows if row["line"] in kept]


def _line_looks(lines: Sequence[str]) -> Looks:
    """Colour and shape of each line, the same in every panel: formats by name, batch sizes by their order."""
    batches = sorted((name for name in lines if name.startswith("batch ")), key=lambda name: int(name.split()[1]))
    ramp = zip(batches, of_workers(range(1, len(batches) + 1)).values(), strict=True)
    looks = {**dict(ramp), **unlike(sorted(set(lines) - set(batches)), plugins.names("feedrate.formats"))}
    return {name: (tint, SHAPES[at % len(SHAPES)]) for at, (name, (tint, _)) in enumerate(looks.items())}


def _lines(rows: Sequence[Row], looks: Looks, cores: float | None) -> Plot:
    """Lines with their intervals, a little beside one another, and where there are as many workers as cores."""
    here = [name for name in looks if any(row["line"] == name for row in rows)]
    places = {name: 1 + 0.035 * (at - (len(here) - 1) / 2) for at, name in enumerate(here)}
    drawn = [{**row, "at": (1 + row["workers"]) * places[row["line"]] - 1} for row in rows]
    numbered = [row["workers"] for row in rows]
    x, y = counts("at", "workers", numbered), amount("value", "samples per second")
    tooltip: Fields = {"workers:Q": "", "line:N": "", **rate("samples per second"), **BLOCKS}
    behind = core_marks([cores], x, max(numbered))
    return Plot(drawn, x, y, "line", looks, joined=True, tooltip=tooltip, behind=behind)


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
    drawn: list[Row] = []
    columns = {"workers": "label", "started by": "begin", "first batch (ms)": "value", **ENDS}
    parts = _settings(startup(trials)) if len(trials) else []
    for cells in parts[:MOST_PANELS]:
        rows = [{"label": who(cell), "begin": begin(cell), **estimate(cell, "startup_ms")} for cell in cells]
        drawn += rows
        loaded = what(cells[0])
        title, _, subtitle = loaded.partition(", ")
        whole = subtitle.replace(" ", "\u00a0").replace(",\u00a0", ", ")  # lines end between parts alone
        broken = [line.rstrip(",").replace("\u00a0", " ") for line in textwrap.wrap(whole, 46)]
        plot = _rows_of_dots(rows, "time to the first batch (ms)", log=True)
        panel = plot.panel(title, broken, _startup_message(rows))
        sheet.add(panel, listed(rows, {"what was loaded": loaded}, columns))
    if (extra := len(parts) - MOST_PANELS) > 0:
        sheet.note(f"{words.plural(extra, 'more panel')} would fit the records: the settings that compare fewest ways.")
    sheet.note("The loader alone; the time contains the preparation of that batch. Lines at the edge go on beyond it.")
    missing = "No two settings here differ in their workers only."
    return sheet.figure(keys(LOOKS, {row["begin"] for row in drawn}), missing)


def _settings(cells: pd.DataFrame) -> list[list[dict[str, Any]]]:
    """Rows of the same setting."""
    return [rows_of(group) for _, group in cells.groupby("setting", sort=False)] if len(cells) else []


def _startup_message(rows: Sequence[Row]) -> str:
    """Name the quickest and the slowest."""
    least, most = (pick(rows, key=lambda row: row["value"]) for pick in (min, max))
    return words.sentence(
        f"{least['label']}: {words.number(least['value'])} ms to the first batch ({interval(least)}); {most['label']}: "
        f"{words.number(most['value'])} ms ({interval(most)}), {words.times(most['value'] / least['value'])} as long"
    )


@chart(
    "Memory of workers",
    "How much memory of their own do workers take, by what the dataset keeps of its samples?",
)
def worker_memory(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw two panels a setting: growth of all workers, and what one of them holds after the window."""
    drawn: list[Row] = []
    columns = {"index, start method": "label", "MiB": "value", **ENDS}
    for cells in _settings(growth(trials)) if len(trials) else ():
        cell, count = cells[0], int(cells[0]["num_workers"])
        entries = f"an index of {int(cell['index_entries']):,} entries"
        least, most = (words.number(pick(row["samples"] for row in cells), 2) for pick in (min, max))
        for name, divisor, title, subtitle in (
            (
                "grew_bytes",
                1,
                f"Growth of {words.plural(count, 'worker')}",
                f"{entries}, {least} to {most} samples read",
            ),
            ("end_bytes", count, "What one worker holds", f"{entries}, after the window"),
        ):
            if not (rows := _memory_rows(cells, name, divisor)):
                continue
            drawn += rows
            plot = _rows_of_dots(rows, "memory of its own (MiB)", log=False)
            panel = plot.panel(title, subtitle, _memory_message(rows, title))
            given = {"what": title, "what was loaded": what(cell, ("index_kind",))}
            sheet.add(panel, listed(rows, given, columns))
    sheet.note(
        "Memory of its own: pages that no other process shares. Forked workers share the training process’ memory "
        "until one writes to it, and reading a Python object is a write. Spawned workers copy it at once. Growth ends "
        "when each worker holds the whole index."
    )
    missing = "No dataset kept an index here, so workers had nothing to copy."
    return sheet.figure(keys(LOOKS, {row["begin"] for row in drawn}), missing)


def _memory_rows(cells: Sequence[Row], name: str, divisor: int) -> list[dict[str, Any]]:
    """A row a cell that has a value, in MiB, most first."""
    rows = []
    for cell in cells:
        row, begun = estimate(cell, name), begin(cell)
        mib = {key: None if row[key] is None else row[key] / divisor / 2**20 for key in ("value", "lo", "hi")}
        if mib["value"] is not None:
            rows.append({"label": f"{cell['index_kind']}, {begun}", "begin": begun, **row, **mib})
    return sorted(rows, key=lambda row: (-row["value"], row["label"]))


def _memory_message(rows: Sequence[Row], title: str) -> str:
    """Name the most and the least."""
    ends = [f"{row['label']}, {words.number(row['value'])} MiB ({interval(row)})" for row in (rows[0], rows[-1])]
    return words.sentence(f"{title}: {'; '.join(ends[: min(2, len(rows))])}".replace("-", "−"))
