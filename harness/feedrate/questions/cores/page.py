"""How many cores a GPU needs, on the page of the suite: a table that follows a slider, the GPU's rate.

Where a GPU was measured its rates are the slider's places, else one is declared. ``site/scripts/site/cores.js`` moves
it; without that script the table stands for the rate that is written beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from markupsafe import Markup

from feedrate.analysis.ceilings import ceiling_ids
from feedrate.charts.figure import Row, interval
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.cores.charts import assumption, busiest, idle, named, on_gpu, per_core, rates_of
from feedrate.schema import words

SUITE = "cores"
RANGE = (200, 20_000)
"""Least and largest rate of the slider, images a second; decades more where a GPU's rate lies beyond."""


def section(view: RunView, suite: str) -> str:
    """Write what a run says of cores and GPUs; nothing where it loaded no image files as they are."""
    trials = view.trials_of(suite)
    loaded = busiest(per_core(trials, view.cores))
    if not loaded:
        return ""
    rates = rates_of(trials)
    alone = {str(cell["cell_id"]): float(cell["samples_per_s"]) for cell in on_gpu(trials, "compute")}
    rate, (least, most) = max(rates.values()), RANGE
    while least > max(2, min(rates.values())):
        least //= 10
    while most < rate:
        most *= 10
    return render(
        "cores/section.md",
        mark=view.mark,
        loaded_by=loaded[0]["decoder"],
        assumption=assumption(loaded[0], view.cores),
        answers=[_answer(loaded[0], name, rate, view.cores) for name, rate in rates.items()],
        declared=not alone,
        rates=[(name, f"{value:.0f}") for name, value in rates.items()],
        rate=f"{rate:.0f}",
        place=f"{1000 * math.log10(rate):.0f}",
        ends=[(f"{end:,}", f"{1000 * math.log10(end):.0f}") for end in (least, most)],
        cores=f"{view.cores:g}",
        machine=view.manifest.machine,
        rows=[_row(core, rate, view.cores) for core in loaded],
        fed=[_fed(cell, alone) for cell in on_gpu(trials, "train")],
    )


def _answer(core: Row, name: str, rate: float, cores: float) -> tuple[str, ...]:
    """A GPU, its rate, how many such cores load as much, the interval of that, and how idle it is with those here."""
    write = partial(words.number, digits=2)
    low, high = (rate / core[end] if core[end] else None for end in ("hi", "lo"))
    needed, idles = write(rate / core["value"]), idle(core["value"], rate, cores)
    spread = words.interval(low, high, write=write)
    return name, words.number(rate), needed, spread, words.percent(idles) if idles else ""


def _row(core: Row, rate: float, cores: float) -> Sequence[object]:
    attributes = Markup('data-core="{:.6g}" data-cores="{:g}"').format(core["value"], cores)
    idle_pct = 100 * idle(core["value"], rate, cores)
    return (
        core["decoder"],
        Markup("{}<br><small>{}</small>").format(words.number(core["value"]), interval(core)),
        words.plural(core["workers"], "worker"),
        Markup('<span class="fr-cores-needed" {}>{}</span>').format(attributes, words.number(rate / core["value"])),
        Markup('<span class="fr-cores-idle" {}>{:.0f}\u00a0%</span>').format(attributes, idle_pct),
    )


def _fed(cell: Row, alone: Mapping[str, float]) -> Sequence[object]:
    """A training cell: what it reached of what its GPU does on batches that are there."""
    reached, whole = float(cell["samples_per_s"]), alone.get(ceiling_ids(cell).get("compute", ""))
    idles = words.percent(idle(reached, whole, 1)) if whole else "–"
    return cell["model"], named(cell), words.plural(int(cell["num_workers"]), "worker"), words.number(reached), idles
