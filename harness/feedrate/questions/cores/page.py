"""How many cores a GPU needs, on the page of the suite: a table that follows a slider, the GPU's rate.

Where a GPU was measured its rates are the slider's places, else one is declared. ``site/scripts/site/cores.js`` moves
it; without that script the table stands for the rate that is written beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.estimates import cells, rows_of
from feedrate.charts.figure import Row, interval
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.cores.charts import busiest, named, of_files, per_core
from feedrate.schema import words

SUITE = "cores"
RANGE = (200, 20_000)
"""Least and largest rate of the slider, images a second."""
DECLARED = {
    "an A100 with ResNet-50 in TF32": 938.0,
    "an A100 with ResNet-50 in mixed precision": 2470.0,
    "an H100 as in MLPerf Storage": 400 / 0.224,
}
"""Images a second that a GPU trains: by NVIDIA's DeepLearningExamples (ResNet-50 v1.5, PyTorch), and as MLPerf Storage
has an H100 sleep for 400 images."""


def section(view: RunView, suite: str) -> str:
    """Write what a run says of cores and GPUs; nothing where it loaded no image files as they are."""
    trials = view.trials_of(suite)
    cores = int(view.cores)
    loaded = busiest(per_core(trials, cores))
    if not loaded:
        return ""
    measured = on_gpu(trials, "compute")
    rates = {f"this GPU with {cell['model']}": float(cell["samples_per_s"]) for cell in measured} or DECLARED
    rate = max(rates.values())
    return render(
        "cores/section.md",
        mark=view.mark,
        best=loaded[0],
        answers=[_answer(loaded[0], name, rate, cores) for name, rate in rates.items()],
        declared=not measured,
        rates=[(name, f"{value:.0f}") for name, value in rates.items()],
        rate=f"{rate:.0f}",
        place=f"{1000 * math.log10(rate):.0f}",
        ends=[f"{1000 * math.log10(end):.0f}" for end in RANGE],
        cores=cores,
        machine=view.manifest.machine,
        rows=[_row(core, rate, cores) for core in loaded],
        fed=[_fed(cell, measured) for cell in on_gpu(trials, "train")],
    )


def on_gpu(trials: pd.DataFrame, mode: str) -> list[Row]:
    """What a GPU trains on image files in ``mode`` compute (batches that are there) or train, the fastest first."""
    every = [cell for cell in rows_of(cells(trials)) if cell["device"] == "cuda" and cell["n"] and of_files(cell)]
    return sorted((cell for cell in every if cell["mode"] == mode), key=lambda cell: -cell["samples_per_s"])


def _answer(core: Row, name: str, rate: float, cores: int) -> tuple[str, ...]:
    """A GPU, its rate, how many such cores load as much, the interval of that, and how idle it is with those here."""
    write = partial(words.number, digits=2)
    low, high = (rate / core[end] if core[end] else None for end in ("hi", "lo"))
    needed, idle = write(rate / core["value"]), _idle(core, rate, cores)
    return name, words.number(rate), needed, words.interval(low, high, write=write), words.percent(idle) if idle else ""


def _idle(core: Row, rate: float, cores: int) -> float:
    """Share of the time that such a GPU has nothing to do, fed by so many cores."""
    return max(0.0, 1 - float(core["value"]) * cores / rate)


def _row(core: Row, rate: float, cores: int) -> Sequence[object]:
    attributes = Markup('data-core="{:.6g}" data-cores="{}"').format(core["value"], cores)
    idle = 100 * _idle(core, rate, cores)
    return (
        core["decoder"],
        Markup("{}<br><small>{}</small>").format(words.number(core["value"]), interval(core)),
        words.plural(core["workers"], "worker"),
        Markup('<span class="fr-cores-needed" {}>{}</span>').format(attributes, words.number(rate / core["value"])),
        Markup('<span class="fr-cores-idle" {}>{:.0f}\u00a0%</span>').format(attributes, idle),
    )


def _fed(cell: Row, measured: Sequence[Row]) -> Sequence[object]:
    """A training cell: what it reached of what its GPU does on batches that are there."""
    alone: dict[Any, float] = {row["model"]: float(row["samples_per_s"]) for row in measured}
    reached = float(cell["samples_per_s"])
    idle = words.percent(max(0.0, 1 - reached / alone[cell["model"]])) if cell["model"] in alone else "–"
    return cell["model"], named(cell), words.plural(int(cell["num_workers"]), "worker"), words.number(reached), idle
