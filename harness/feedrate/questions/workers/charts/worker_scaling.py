"""Scaling with workers: throughput, and how much of each further worker arrives.

For each task throughput against the number of workers, and the speed-up over the fewest workers divided by how many
times as many processes load (none counts as one: the training process loads itself). Real training, an emulated step
and loading alone stand apart. It does not show what a machine with more cores would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimates import cells, rows_of
from feedrate.analysis.storage import credible, scaling
from feedrate.charts.figure import (
    EMULATED,
    LOAD,
    RATE,
    TRAIN,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    Slice,
    data,
    estimate,
    held,
    interval,
    listed,
    numbers,
    plain,
    slices,
    table,
)
from feedrate.charts.marks import BLOCKS, HEIGHT, Looks, hover, lines, look, rate
from feedrate.charts.theme import SHAPES, colour, series
from feedrate.schema import words

TITLE = "Scaling with workers"
QUESTION = "How many workers pay, and how much of each further one arrives?"
READS = "trials"
TASKS = 3
"""That are drawn; the others are in the table."""
LINES = 5
"""Of a task that are drawn: those with the most worker counts, of these the fastest."""
_KINDS = (EMULATED, LOAD, TRAIN)
_COLUMNS = {
    "line": "line",
    "num_workers": "workers",
    **RATE,
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
Task = tuple[Slice, list[dict[str, Any]], dict[str, Any]]
"""A slice, its marks, and the axes that are held still."""


def draw(trials: pd.DataFrame, cores: float | None = None) -> Figure:
    """Draw throughput and efficiency against the number of workers; ``cores`` are those of the machine."""
    sheet = Sheet(TITLE, QUESTION)
    if not len(trials):
        return sheet.figure((), _MISSING)
    estimated = cells(credible(trials))
    added = [*KEYS, "base_workers", "speedup", "speedup_lo", "speedup_hi", "pairs"]
    found = estimated.merge(scaling(trials, estimated)[added], on=list(KEYS), how="left")
    tasks = _in_turn([task for part in slices(found, _KINDS) if (task := _task(part))[1]])
    for part, rows, still in tasks:
        sheet.rows.extend(listed(rows, part.row(), _COLUMNS))
        sheet.held |= still
    drawn = [(part, _fewer(rows)) for part, rows, _ in tasks[:TASKS]]
    looks = _looks(list(dict.fromkeys(row["line"] for _, rows in drawn for row in rows)))
    for part, rows in drawn:
        sheet.panels += [_throughput(part, rows, looks, cores), _efficiency(part, rows, looks, cores)]
    sheet.note(
        "Efficiency: speed-up over the fewest workers, paired by block, ÷ how many times as many processes load. "
        "No workers count as one process: the training process loads itself."
    )
    if any(part.kind != LOAD for part, _ in drawn):
        sheet.note("Before a step the speed-up ends where the step holds the loop back, however many workers load.")
    if (more := len(sheet.rows) - sum(len(rows) for _, rows in drawn)) > 0:
        sheet.note(f"The table has {words.plural(more, 'row')} more than the panels: further tasks and lines.")
    return sheet.figure([Key(name, *pair) for name, pair in looks.items()], _MISSING)


def _in_turn(tasks: Sequence[Task]) -> list[Task]:
    """Tasks with the most worker counts first; the first of each kind before the second of any."""
    ordered = sorted(tasks, key=lambda task: (-len(numbers(task[0].frame, "num_workers")), _KINDS.index(task[0].kind)))
    kinds = [task[0].kind for task in ordered]
    turns = [kinds[:place].count(kind) for place, kind in enumerate(kinds)]
    return [task for _, task in sorted(zip(turns, ordered, strict=True), key=lambda pair: pair[0])]


def _task(part: Slice) -> Task:
    """A mark a row, of lines with two worker counts or more: storage formats where there are several, else batches."""
    formats = part.frame["storage_format"].dropna().nunique() > 1
    axis = "storage_format" if formats else "batch_size"
    frame, still = held(part.frame, ("num_workers", "prefetch_factor", axis))
    ordered = frame.sort_values(["num_workers", "prefetch_factor"]).drop_duplicates([axis, "num_workers"])
    several = ordered.groupby(axis)["num_workers"].transform("size").gt(1)
    found = rows_of(ordered[several].sort_values([axis, "num_workers"]))
    return part, [_row(cell, str(cell[axis]) if formats else f"batch {int(cell[axis])}") for cell in found], still


def _row(cell: Row, line: str) -> dict[str, Any]:
    """One mark: throughput, speed-up over the fewest workers, and that by processes."""
    base, workers = plain(cell["base_workers"]), int(cell["num_workers"])
    times = {f"times{end}": plain(cell[f"speedup{end}"]) for end in ("", "_lo", "_hi")}
    more = None if base is None else max(1, workers) / max(1, int(base))
    shares = {name.replace("times", "share"): value and more and value / more for name, value in times.items()}
    return {
        "line": line,
        "workers": workers,
        **estimate(cell),
        **times,
        **shares,
        "base": base if base is None else int(base),
        "pairs": int(plain(cell["pairs"]) or 0),
    }


def _fewer(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the lines that tell most, so that marks stay apart."""
    rank: dict[str, tuple[int, float]] = {}
    for row in rows:
        count, best = rank.get(row["line"], (0, 0.0))
        rank[row["line"]] = count + 1, max(best, row["value"])
    kept = sorted(rank, key=lambda name: rank[name], reverse=True)[:LINES]
    return [row for row in rows if row["line"] in kept]


def _looks(found: Sequence[str]) -> Looks:
    """Colour and shape of each line, the same in every panel: formats by name, batch sizes by their order."""
    batches = sorted((name for name in found if name.startswith("batch ")), key=lambda name: int(name.split()[1]))
    formats = sorted(name for name in found if name not in batches)
    tones = [*series(len(batches), has_zero=False), *(colour(f"name-{at % 7}") for at in range(len(formats)))]
    return {
        name: (tone, SHAPES[at % len(SHAPES)])
        for at, (name, tone) in enumerate(zip([*batches, *formats], tones, strict=True))
    }


def _throughput(part: Slice, rows: Sequence[Row], looks: Looks, cores: float | None) -> Panel:
    y: dict[str, Any] = {"title": "samples per second", "scale": alt.Scale(zero=True, nice=5)}
    y["axis"] = alt.Axis(format=",.3~s")
    layers = _layers(rows, ("value", "lo", "hi"), looks, y, cores)
    return Panel.draw(part.title, part.subtitle, _throughput_message(rows), layers, HEIGHT)


def _efficiency(part: Slice, rows: Sequence[Row], looks: Looks, cores: float | None) -> Panel:
    """The speed-up by the number of processes."""
    known = [row for row in rows if row["share"] is not None]
    top = max((row["share_hi"] or row["share"] for row in known), default=1.0)
    y: dict[str, Any] = {
        "title": "speed-up ÷ processes",
        "scale": alt.Scale(domain=[0, min(2.0, max(1.1, top * 1.05))], clamp=True),
        "axis": alt.Axis(format=".0%", tickCount=5),
    }
    whole = alt.Chart(table([{"y": 1.0}])).mark_rule(color=colour("muted"), strokeDash=[4, 3])
    layers = [whole.encode(y=alt.Y("y:Q", **y)), *_layers(known, ("share", "share_lo", "share_hi"), looks, y, cores)]
    return Panel.draw(f"{part.title}: efficiency", part.subtitle, _efficiency_message(known), layers, HEIGHT)


def _layers(
    rows: Sequence[Row], fields: tuple[str, str, str], looks: Looks, y: Mapping[str, Any], cores: float | None
) -> list[alt.Chart]:
    """Lines with their intervals, a little beside one another, and where there are as many workers as cores."""
    value, lo, hi = fields
    here = [name for name in looks if any(row["line"] == name for row in rows)]
    places = {name: 1 + 0.035 * (at - (len(here) - 1) / 2) for at, name in enumerate(here)}
    drawn = [{**row, "at": (1 + row["workers"]) * places[row["line"]] - 1} for row in rows]
    end = max(row["at"] for row in drawn) * 1.08 + 0.1
    x = alt.X(
        "at:Q",
        title="workers",
        scale=alt.Scale(type="symlog", constant=1, domain=[min(-0.12, *(row["at"] for row in drawn)), end], nice=False),
        axis=alt.Axis(values=sorted({row["workers"] for row in rows}), format="d", grid=False),
    )
    tone, shape = look("line", looks, here)
    base = alt.Chart(data(drawn, "at", "line", "workers", value, lo, hi, "n", "pairs")).encode(x=x, color=tone)
    blocks = BLOCKS if value == "value" else {"pairs:Q": "blocks"}
    tooltip = hover({"line:N": "", "workers:Q": "", **rate(str(y["title"]), value, lo, hi), **blocks})
    layers = lines(base, y, shape, tooltip, fields=fields)
    if cores is None or cores > end:
        return layers
    text = words.plural(int(cores), "core") if cores == int(cores) else "cores"
    at = alt.Chart(table([{"at": cores, "text": text}])).encode(x=x)
    name = at.mark_text(align="right", baseline="top", dx=-4, fontSize=10, color=colour("muted"))
    return [
        at.mark_rule(color=colour("muted"), strokeDash=[2, 3]),
        name.encode(y=alt.value(2), text=alt.Text("text:N")),
        *layers,
    ]


def _throughput_message(rows: Sequence[Row]) -> str:
    """Name the fastest mark, and set it against the fewest workers of its line."""
    best = max(rows, key=lambda row: row["value"])
    text = (
        f"the fastest is {best['line']} with {words.plural(best['workers'], 'worker')}: {words.number(best['value'])} "
        f"samples/s ({interval(best)})"
    )
    if best["times"] is not None and best["workers"] != best["base"]:
        spread = interval(best, "times_lo", "times_hi", "pairs")
        text += f", {words.times(best['times'])} what it does with {best['base']} ({spread})"
    return words.sentence(text)


def _efficiency_message(rows: Sequence[Row]) -> str:
    """At the most workers: which line uses them best, and which least."""
    workers = max((row["workers"] for row in rows), default=0)
    end = [row for row in rows if row["workers"] == workers and row["workers"] != row["base"]]
    if not end:
        return "No two numbers of workers were measured in the same blocks: 0 comparisons."
    most, least = (pick(end, key=lambda row: float(row["share"])) for pick in (max, min))
    text = f"with {words.plural(workers, 'worker')}, {most['line']} keeps {_kept(most)}"
    return words.sentence(text if most is least else f"{text}; {least['line']}, {_kept(least)}")


def _kept(row: Row) -> str:
    """How much of the speed-up that the processes could bring there is."""
    text, lo, hi = f"{words.percent(row['share'])} of what each process could bring", row["share_lo"], row["share_hi"]
    if words.known(lo) and words.known(hi):
        return f"{text} (95\u00a0% interval {100 * lo:.0f} to {words.percent(hi)}, n = {row['pairs']})"
    return f"{text} (n = {row['pairs']}: no interval)"
