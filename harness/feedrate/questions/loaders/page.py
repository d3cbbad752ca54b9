"""Which loader, on the page of the suite: the answer by task, and a table of what each loader takes for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
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
from feedrate.plan.claim import SOURCES
from feedrate.plan.suite import load
from feedrate.questions.loaders.charts import compared
from feedrate.schema import plugins, words
from feedrate.schema.axes import BY_NAME
from feedrate.schema.plugins import loader_traits
from feedrate.store.manifest import Dataset

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
    of_files_first = sorted(tasks, key=lambda task: plugins.samples_of(task[0].workload) != "files")
    most = max(row["workers"] for _, rows, _ in tasks for row in rows)
    return (
        render("loaders/answers.md", answers=answers, default=_DEFAULT, workers=most),
        render(
            "loaders/tables.md",
            tables=tables,
            default=_DEFAULT,
            traits=traits,
            mark=view.mark,
            packed=[(d.name, d.storage_format, descriptions.size(d.bytes), f"{d.pack_s:.1f} s") for d in packed],
            published=list(_published(trials, [rows for _, rows, _ in of_files_first], costs, packed)),
            unmeasured=UNMEASURED.items(),
        ),
    )


def _against_default(trials: pd.DataFrame, rows: Sequence[Row]) -> Mapping[str, Estimate]:
    """Each cell's speed ÷ that of PyTorch's loader with as many workers, by its id; none of that one itself."""
    default = {row["workers"]: row for row in rows if row["loader"] == _DEFAULT}
    others = [row for row in rows if row["loader"] != _DEFAULT and row["workers"] in default]
    ratios = _ratios(trials, [(default[row["workers"]], row) for row in others])
    return {row["cell_id"]: ratio for row, ratio in zip(others, ratios, strict=True)}


def _ratios(trials: pd.DataFrame, pairs: Sequence[tuple[Row, Row]]) -> list[Estimate]:
    """The second's speed ÷ the first's, paired by block."""
    if not pairs:
        return []
    cells = [(second["run_id"], first["cell_id"], second["cell_id"]) for first, second in pairs]
    table = blocks_of(trials).ratios(*map(list, zip(*cells, strict=True)))
    return [Estimate.of_row(ratio, RATIO, "ratio") for ratio in rows_of(table)]


def _published(
    trials: pd.DataFrame,
    tasks: Sequence[Sequence[Row]],
    costs: Mapping[str, Mapping[str, Any]],
    packed: Sequence[Dataset],
) -> Iterator[tuple[str, ...]]:
    """What authors claim of two loaders beside what the first task with both says of them."""
    seconds: dict[str, dict[str, float]] = {}
    for data in packed:
        seconds.setdefault(data.name, {})[data.storage_format] = data.pack_s
    for claim in load(SUITE).claims:
        sides = [values["loader"] for _, values in claim.effect.steps] if claim.effect else []
        for rows in tasks:
            busiest = {row["plugin"]: row for row in sorted(rows, key=itemgetter("workers")) if row["plugin"] in sides}
            if len(busiest) == len(sides):
                break
        else:
            continue
        first, second = (busiest[side] for side in sides)
        (ratio,) = _ratios(trials, [(first, second)])
        measured = [ratio.text() if ratio.known else "too few repetitions", _share(second, first, costs)]
        formats = second["storage_format"], first["storage_format"]
        if formats[0] != formats[1]:
            packs = (took for took in seconds.values() if {*formats} <= took.keys())
            measured += ["packed in {:.1f} and {:.1f} s".format(*(took[name] for name in formats)) for took in packs]
        titles = [loader_traits(str(side)).title for side in sides]
        sources = ", ".join(SOURCES[name].title for name in claim.sources)
        yield f"{titles[1]} against {titles[0]}", claim.figures, "; ".join(measured), claim.not_shown, sources


def _share(second: Row, first: Row, costs: Mapping[str, Mapping[str, Any]]) -> str:
    """CPU and memory of a loader ÷ those of another."""
    cpu, memory = (
        of(second, costs[second["cell_id"]]) / of(first, costs[first["cell_id"]])
        for of in (_cpu_s, lambda _, cost: float(cost["pss_peak_mib"]))
    )
    return f"{words.number(cpu, 2)}× the CPU, {words.number(memory, 2)}× the memory"


def _cpu_s(row: Row, cost: Mapping[str, Any]) -> float:
    """CPU seconds of all processes for a thousand samples."""
    busy = np.nansum([float(cost[name]) for name in ("main_cpu_pct", "workers_cpu_pct")])
    return float(10 * busy / row["value"])


def _answer(rows: Sequence[Row], ratios: Mapping[str, Estimate]) -> str:
    """Which loaders are clearly faster or slower than PyTorch's with as many workers, and how many are neither."""
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
    return " ".join([*named, tied] if rest else named)


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
