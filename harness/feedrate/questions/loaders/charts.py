"""Loaders side by side: what each delivers of the same batches, by the number of its workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import asked, cells, rows_of
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    ENDS,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    Slice,
    chart,
    data,
    estimate,
    held,
    interval,
    listed,
    slices,
)
from feedrate.charts.marks import BLOCKS, dots, height, hover, look, names, rate
from feedrate.charts.theme import SHAPES, colour
from feedrate.schema import words
from feedrate.schema.plugins import loader_traits

FREE = ("loader", "num_workers", "storage_format", "access")
_KINDS = (LOAD, EMULATED, TRAIN)
_COLUMNS = {"loader": "loader", "workers": "workers", "samples per s": "value", **ENDS}
_MISSING = "No task of this run was loaded by two loaders."


def compared(trials: pd.DataFrame) -> list[tuple[Slice, list[Row], dict[str, Any]]]:
    """Tasks that several loaders worked on: the slice, a row a cell (the fastest loader first), what is held still."""
    tasks = []
    every = cells(trials)
    for part in slices(every[asked(trials, every)], _KINDS):
        frame, still = held(part.frame[part.frame["loader"].notna()], FREE)
        if frame["loader"].nunique() < 2:
            continue
        usual = str(frame["storage_format"].mode()[0])
        rows: list[Row] = [{**_row(cell), "loader": named(cell, usual)} for cell in rows_of(frame)]
        best = {row["loader"]: row["value"] for row in sorted(rows, key=itemgetter("value"))}
        tasks.append((part, sorted(rows, key=lambda row: (-best[row["loader"]], row["loader"], row["workers"])), still))
    return tasks


def _row(cell: Mapping[Any, Any]) -> dict[str, Any]:
    workers = int(cell["num_workers"])
    identity = {name: cell[name] for name in ("run_id", "cell_id")}
    return {
        **identity,
        "plugin": str(cell["loader"]),
        "storage_format": str(cell["storage_format"]),
        "workers": workers,
        "who": words.plural(workers, "worker"),
        **estimate(cell),
    }


def named(cell: Mapping[Any, Any], usual: str) -> str:
    """Name a cell's loader as its authors do, and the format where it is not that of the others."""
    trait, storage_format = loader_traits(str(cell["loader"])), str(cell["storage_format"])
    return trait.title if trait.streams or storage_format == usual else f"{trait.title}, {storage_format}"


@chart("Loaders side by side", "Which loader delivers most of the same batches?")
def loader_rates(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw each loader's rate, a panel a task, a mark for each number of workers."""
    tasks = compared(trials)
    order = sorted({(row["workers"], row["who"]) for _, rows, _ in tasks for row in rows})
    looks = {who: (colour(f"name-{at % 6}"), SHAPES[at % len(SHAPES)]) for at, (_, who) in enumerate(order)}
    for part, rows, still in tasks:
        used = list(dict.fromkeys(row["loader"] for row in rows))
        tone, shape = look("who", looks, {row["who"] for row in rows})
        base = alt.Chart(data(rows, "loader", "who", "workers", "value", "lo", "hi", "n"))
        whos = [who for _, who in order if who in {row["who"] for row in rows}]
        beside = alt.YOffset("who:N", sort=whos, scale=alt.Scale(domain=whos, paddingOuter=0.6))
        base = base.encode(y=names("loader", used), yOffset=beside, color=tone)
        tooltip = hover({"loader:N": "", "who:N": "", **rate("samples per second"), **BLOCKS})
        axis = alt.Axis(tickCount=5, format="~s", domain=False)
        x = {"title": "samples per second", "scale": alt.Scale(zero=True), "axis": axis}
        layers = dots(base, x, shape, tooltip)
        sheet.add(
            Panel.draw(part.title, part.subtitle, _message(part, rows), layers, height(len(used))),
            listed(rows, part.row(), _COLUMNS),
            still,
        )
    return sheet.figure([Key(who, *pair) for who, pair in looks.items()], _MISSING)


def _message(part: Slice, rows: Sequence[Row]) -> str:
    """The fastest and the slowest loader, each with the workers that it is fastest with."""
    best = {row["loader"]: row for row in sorted(rows, key=itemgetter("value"))}
    slowest, *_, fastest = sorted(best.values(), key=itemgetter("value"))
    return (
        f"{part.title}, {part.subtitle}: {fastest['loader']} with {fastest['who']} delivers "
        f"{words.number(fastest['value'])} samples a second ({interval(fastest)}), "
        f"{slowest['loader']} {words.number(slowest['value'])} ({interval(slowest)})."
    )
