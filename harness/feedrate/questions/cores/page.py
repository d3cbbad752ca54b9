"""How many cores a GPU needs, on the page of the suite: a table that follows a slider, the GPU's rate.

Where a GPU was measured its rates are the slider's places, else one is declared. ``site/scripts/site/cores.js`` moves
it; without that script the table stands for the rate that is written beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from feedrate.charts.figure import Row
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.cores.charts import Core, busiest, named, on_gpu, per_core, rates_of
from feedrate.schema import words

SUITE = "cores"
RANGE = (200, 20_000)
"""Least and largest rate of the slider, images a second."""


def section(view: RunView, suite: str) -> str:
    """Write what a run says of cores and GPUs; nothing where it loaded no image files as they are."""
    trials = view.trials_of(suite)
    cores = int(view.cores)
    loaded = busiest(per_core(trials, cores))
    if not loaded:
        return ""
    measured, rates = on_gpu(trials, "compute"), rates_of(trials)
    rate = max(rates.values())
    return render(
        "cores/section.md",
        mark=view.mark,
        loaded_by=loaded[0].decoder,
        answers=list(_answers(loaded[0], rates, cores)),
        declared=not measured,
        rates=[(name, f"{value:.0f}") for name, value in rates.items()],
        rate=f"{rate:.0f}",
        place=f"{1000 * math.log10(rate):.0f}",
        ends=[f"{1000 * math.log10(end):.0f}" for end in RANGE],
        cores=cores,
        threads=_threads(view),
        rows=[_row(core, rate, cores) for core in loaded],
        fed=[_fed(cell, measured) for cell in on_gpu(trials, "train")],
    )


def _threads(view: RunView) -> str:
    """How many vCPUs share a core, as the system says (``lscpu``)."""
    machine = view.manifest.machine
    if not machine.cores_physical:
        return "The system does not say how many of them share a core"
    shared = machine.cores_logical / machine.cores_physical
    host = "; its host may count otherwise" if machine.virtualised else ""
    return f"Here a core has {words.plural(round(shared), 'thread')}, as the system counts{host}"


def _answers(best: Core, rates: dict[str, float], cores: int) -> Iterator[str]:
    """For every rate: how many cores, and how idle with those of the machine."""
    for name, rate in rates.items():
        idle = best.idle(rate, cores)
        yield (
            f"{name} ({words.number(rate)} images a second) needs {words.number(best.needed(rate), 2)} of these vCPUs"
            + (f", and is {words.percent(idle)} idle with {cores}" if idle else f"; {cores} feed it")
        )


def _row(core: Core, rate: float, cores: int) -> Sequence[object]:
    spread = words.interval(core.lo, core.hi, core.n)
    attributes = Markup('data-core="{:.6g}" data-cores="{}"').format(core.value, cores)
    return (
        core.decoder,
        Markup("{}<br><small>{}</small>").format(words.number(core.value), spread),
        words.plural(core.workers, "worker"),
        Markup('<span class="fr-cores-needed" {}>{}</span>').format(attributes, words.number(core.needed(rate))),
        Markup('<span class="fr-cores-idle" {}>{:.0f}\u00a0%</span>').format(attributes, 100 * core.idle(rate, cores)),
    )


def _fed(cell: Row, measured: Sequence[Row]) -> Sequence[object]:
    """A training cell: what it reached of what its GPU does on batches that are there."""
    alone: dict[Any, float] = {row["model"]: float(row["samples_per_s"]) for row in measured}
    reached = float(cell["samples_per_s"])
    idle = words.percent(max(0.0, 1 - reached / alone[cell["model"]])) if cell["model"] in alone else "–"
    return cell["model"], named(cell), words.plural(int(cell["num_workers"]), "worker"), words.number(reached), idle
