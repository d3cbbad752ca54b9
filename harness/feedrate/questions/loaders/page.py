"""Which loader, on the page of the suite: the answer by task, and a table of what each loader takes for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import blocks_of
from feedrate.analysis.estimate import RATIO, Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.measures import estimate_measures
from feedrate.charts.figure import Row
from feedrate.pages.markup import two_lines
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.loaders.charts import compared
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME
from feedrate.schema.plugins import loader_traits

SUITE = "loaders"
_DEFAULT = loader_traits(str(BY_NAME["loader"].default)).title
"""PyTorch's loader, which others are held against."""


def sections(view: RunView, suite: str) -> tuple[str, str]:
    """Write what a run says of loaders: the answers and, for below the chart, the tables; nothing without two loaders.

    A task has a line of the answers and a table.
    """
    trials = view.trials_of(suite)
    if not (tasks := compared(trials)):
        return "", ""
    costs = {row["cell_id"]: row for row in rows_of(estimate_measures(trials))}
    answers, tables = [], []
    for part, rows, _ in tasks:
        ratios = _against_default(trials, rows)
        title = f"{part.title}, {part.subtitle}"
        answers.append((title, _answer(rows, ratios)))
        tables.append((title, [_line(row, ratios[at], costs[row["cell_id"]]) for at, row in enumerate(rows)]))
    used = {row["plugin"]: loader_traits(row["plugin"]) for _, rows, _ in tasks for row in rows}
    traits = [(trait.title, trait.workers, trait.order, trait.lacks or "–") for trait in used.values()]
    most = max(row["workers"] for _, rows, _ in tasks for row in rows)
    return (
        render("loaders/answers.md", answers=answers, default=_DEFAULT, workers=most),
        render("loaders/tables.md", tables=tables, default=_DEFAULT, traits=traits, mark=view.mark),
    )


def _against_default(trials: pd.DataFrame, rows: Sequence[Row]) -> list[Estimate | None]:
    """Each cell's speed ÷ that of PyTorch's loader with as many workers, paired by block; None for that one itself."""
    default = {row["workers"]: row["cell_id"] for row in rows if row["loader"] == _DEFAULT}
    others = [(at, row) for at, row in enumerate(rows) if row["loader"] != _DEFAULT and row["workers"] in default]
    ratios: list[Estimate | None] = [None] * len(rows)
    if others:
        pairs = [(row["run_id"], default[row["workers"]], row["cell_id"]) for _, row in others]
        table = blocks_of(trials).ratios(*map(list, zip(*pairs, strict=True)))
        for (at, _), ratio in zip(others, rows_of(table), strict=True):
            ratios[at] = Estimate.of_row(ratio, RATIO, "ratio")
    return ratios


def _answer(rows: Sequence[Row], ratios: Sequence[Estimate | None]) -> str:
    """Which loaders are clearly faster or slower than PyTorch's with as many workers, and how many are neither."""
    compared_rows = [(row, ratio) for row, ratio in zip(rows, ratios, strict=True) if ratio and ratio.known]
    if not compared_rows:
        return "Too few repetitions to compare."
    most = max(row["workers"] for row, _ in compared_rows)
    busiest = [(row["loader"], ratio) for row, ratio in compared_rows if row["workers"] == most]
    faster = [f"{loader} {ratio.text()}" for loader, ratio in busiest if ratio.low > 1]
    slower = [f"{loader} {ratio.text()}" for loader, ratio in busiest if ratio.high < 1]
    named = [f"{word}: {words.listed(group)}" for word, group in (("faster", faster), ("slower", slower)) if group]
    rest = len(busiest) - len(faster) - len(slower)
    tied = f"{rest} of {len(busiest)} others show no clear difference"
    return words.sentence("; ".join([*named, tied] if rest else named))


def _line(row: Row, ratio: Estimate | None, cost: Mapping[str, Any]) -> Sequence[object]:
    rate = float(row["value"])
    busy = np.nansum([float(cost[name]) for name in ("main_cpu_pct", "workers_cpu_pct")])
    return (
        row["loader"],
        str(row["workers"]),
        two_lines(words.number(rate), words.interval(row["lo"], row["hi"])),
        "–" if ratio is None else two_lines(f"{words.number(ratio.value)}×", words.interval(ratio.low, ratio.high)),
        f"{words.number(10 * busy / rate, 2)} s",
        f"{words.number(float(cost['pss_peak_mib']))} MiB",
        f"{words.number(float(cost['startup_ms']) / 1000, 2)} s",
    )
