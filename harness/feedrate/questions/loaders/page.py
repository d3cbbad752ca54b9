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
from feedrate.pages import descriptions
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
UNMEASURED: Mapping[str, str] = {
    "MosaicML Streaming 0.13": "asks for NumPy below 2.2 and transformers below 5; without them it cannot be imported",
    "datago 2026.10": "delivers whole images one by one: crops and batches would be made in the training process",
    "dataloader-rs 0.2": "has files for Python 3.13 and newer only",
    "FFCV": "must be compiled against OpenCV’s C++ libraries",
    "SPDL’s own decoder": "needs FFmpeg’s libraries on the system",
}
"""Loaders of November 2026 that the suite has not, and why."""


def sections(view: RunView, suite: str) -> tuple[str, str]:
    """Write what a run says of loaders: the answers and, for below the chart, the tables; nothing without two loaders.

    A task has a line of the answers and a table.
    """
    trials = view.trials_of(suite)
    if not (tasks := compared(trials)):
        return "", ""
    costs = {row["cell_id"]: row for row in rows_of(estimate_measures(trials))}
    answers, tables = [], []
    for subset, rows, _ in tasks:
        ratios = _against_default(trials, rows)
        title = f"{subset.title}, {subset.subtitle}"
        answers.append((title, _answer(rows, ratios)))
        tables.append((title, [_line(row, ratios.get(row["cell_id"]), costs[row["cell_id"]]) for row in rows]))
    used = {row["plugin"]: loader_traits(row["plugin"]) for _, rows, _ in tasks for row in rows}
    traits = [
        (trait.title, trait.workers, trait.order, trait.errors, "yes" if trait.resumes else "no", trait.lacks or "–")
        for trait in used.values()
    ]
    packed = view.manifest.datasets
    return (
        render("loaders/answers.md", answers=answers, default=_DEFAULT),
        render(
            "loaders/tables.md",
            tables=tables,
            default=_DEFAULT,
            traits=traits,
            mark=view.mark,
            packed=[(d.name, d.storage_format, descriptions.size(d.bytes), f"{d.pack_s:.1f} s") for d in packed],
            unmeasured=UNMEASURED.items(),
        ),
    )


def _against_default(trials: pd.DataFrame, rows: Sequence[Row]) -> Mapping[str, Estimate]:
    """Each cell's speed ÷ that of PyTorch's loader with as many workers, by its id; none of that one itself."""
    default = {row["workers"]: row for row in rows if row["loader"] == _DEFAULT}
    others = [row for row in rows if row["loader"] != _DEFAULT and row["workers"] in default]
    if not others:
        return {}
    ids = [row["cell_id"] for row in others]
    to = [default[row["workers"]]["cell_id"] for row in others]
    table = blocks_of(trials).ratios([row["run_id"] for row in others], to, ids)
    return {name: Estimate.of_row(ratio, RATIO, "ratio") for name, ratio in zip(ids, rows_of(table), strict=True)}


def _cpu_s(row: Row, cost: Mapping[str, Any]) -> float:
    """CPU seconds of all processes for a thousand samples."""
    busy = np.nansum([float(cost[name]) for name in ("main_cpu_pct", "workers_cpu_pct")])
    return float(10 * busy / row["value"])


def _answer(rows: Sequence[Row], ratios: Mapping[str, Estimate]) -> str:
    """Which loaders are clearly faster or slower than PyTorch's with as many workers, and how many are neither."""
    if not ratios:
        return f"{_DEFAULT} was not measured with as many workers."
    pairs = ((row, ratios.get(row["cell_id"])) for row in rows)
    compared_rows = [(row, ratio) for row, ratio in pairs if ratio and ratio.known]
    if not compared_rows:
        return "Too few repetitions to compare."
    most = max(row["workers"] for row, _ in compared_rows)
    busiest = [(row["loader"], ratio) for row, ratio in compared_rows if row["workers"] == most]
    faster = [f"{loader} {ratio.text()}" for loader, ratio in busiest if ratio.low > 1]
    slower = [f"{loader} {ratio.text()}" for loader, ratio in busiest if ratio.high < 1]
    named = [f"{word}: {words.listed(group)}." for word, group in (("Faster", faster), ("Slower", slower)) if group]
    rest = len(busiest) - len(faster) - len(slower)
    tied = f"{rest} of {len(busiest)} others {'ties' if rest == 1 else 'tie'} with {_DEFAULT}."
    return " ".join([*named, *([tied] if rest else []), f"All with {words.plural(most, 'worker')}."])


def _line(row: Row, ratio: Estimate | None, cost: Mapping[str, Any]) -> Sequence[object]:
    return (
        row["loader"],
        str(row["workers"]),
        two_lines(words.number(row["value"]), words.interval(row["lo"], row["hi"])),
        "–" if ratio is None else two_lines(f"{words.number(ratio.value)}×", words.interval(ratio.low, ratio.high)),
        f"{words.number(_cpu_s(row, cost), 2)} s",
        f"{words.number(float(cost['pss_peak_mib']))} MiB",
        f"{words.number(float(cost['startup_ms']) / 1000, 2)} s",
    )
