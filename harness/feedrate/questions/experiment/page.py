"""The experiment that most claims come from, below the claims: its tables beside those of runs that repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.claims import VERDICTS
from feedrate.analysis.sentences import estimate
from feedrate.pages import selection
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.pages.verdicts import Verdicts
from feedrate.plan.claim import SOURCES
from feedrate.plan.suite import MAIN
from feedrate.questions.claims import page as claims_page
from feedrate.questions.experiment import analysis
from feedrate.questions.experiment.analysis import MINUTES, SPOKEN_MINUTES, UTILIZATION
from feedrate.questions.runs import facts as runs_facts
from feedrate.schema import words
from feedrate.schema.axes import EMULATED_STEPS, Value
from feedrate.store.marks import REFERENCE

PATH = claims_page.PATH
SOURCE = "IO"
"""Key of ``SOURCES``."""
_TIMES = "How many times as many samples a second."


def section(runs: Sequence[RunView], verdicts: Verdicts) -> Markup:
    """Write it from all runs that may be drawn on, newest first, and what they say of the source's sentences."""
    figures = [
        (
            str(batch),
            f"{minutes:g} min",
            f"{SPOKEN_MINUTES[batch]:g} min" if batch in SPOKEN_MINUTES else "–",
            words.number(minutes / MINUTES[8]),
            words.percent(UTILIZATION[batch] / 100),
        )
        for batch, minutes in MINUTES.items()
    ]
    return render(
        "experiment/section.md",
        path=PATH,
        tally=_tally(verdicts),
        source=SOURCES[SOURCE],
        figures=figures,
        machines=[_machine(view, compared) for view, compared in islice(_repeating(runs), selection.MACHINES)],
        most=selection.MACHINES,
    )


def _repeating(runs: Sequence[RunView]) -> Iterator[tuple[RunView, pd.DataFrame]]:
    """Of each machine and device the run that repeats most, with its contrasts; reference runs come first."""
    of_machine: dict[tuple[str, str], list[RunView]] = {}
    for view in runs:
        if MAIN in view.manifest.suites:
            of_machine.setdefault(view.where, []).append(view)
    for views in sorted(of_machine.values(), key=lambda views: not any(map(_is_reference, views))):
        yield from islice(_fullest(views), 1)


def _fullest(views: Sequence[RunView]) -> Iterator[tuple[RunView, pd.DataFrame]]:
    """A machine's runs with a series of batch sizes: reference runs first, then those with most, then the newest."""
    for tier in (True, False):
        of_tier = [view for view in views if _is_reference(view) is tier]
        for view in sorted(of_tier, key=lambda view: -analysis.batch_sizes(view.trials)):
            compared = analysis.experiment_contrasts(view.trials)
            if len(analysis.epochs(compared)):
                yield view, compared


def _is_reference(view: RunView) -> bool:
    return view.beside.tier == REFERENCE


def _tally(verdicts: Verdicts) -> list[str]:
    """How many of the source's sentences are tested, then how that ended on each platform; empty if none is."""
    names = [name for name, (_, claim) in verdicts.claims.items() if SOURCE in claim.sources]
    tested = sum(any(result.tested for result in verdicts.results[name]) for name in names)
    lines = [f"{tested} of this source’s {len(names)} sentences are tested; the claims above show each."]
    for at, platform in enumerate(verdicts.platforms):
        counts = Counter(verdicts.results[name][at].verdict for name in names)
        ends = words.listed(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
        lines.append(f"{platform.name}: {ends}.")
    return lines if tested else []


def _machine(view: RunView, compared: pd.DataFrame) -> dict[str, Any]:
    """What a run has beside the source: epochs by batch size, then ratios of the other knobs."""
    source = words.listed(f"{words.number(MINUTES[batch] / MINUTES[8])} at {batch}" for batch in analysis.BATCHES[1:])
    missing = "Pinned memory needs a CUDA device; this run was made on the CPU."
    if view.manifest.device == "cuda":
        missing = "This run gives no ratio of pinned to pageable memory."
    knobs = (
        ("lmdb", "LMDB against a folder of PNG files", "better, “but not so much”", "storage_format", "png", "lmdb"),
        ("workers-8", "8 workers against none", "", "num_workers", 0, 8),
        ("workers-16", "16 workers against 8", "", "num_workers", 8, 16),
        ("pinned", "Pinned memory against pageable", "slower at 16 pixels, faster at 64", "pin_memory", False, True),
    )
    grids = [
        _grid(
            "epochs",
            "How long an epoch takes, against batches of 8",
            f"Less than 1 is shorter. The source’s tables: {source}.",
            analysis.epochs(compared),
            "batch_size",
        )
    ]
    for name, title, quoted, axis, a, b in knobs:
        note = f"{_TIMES} The source: {quoted}." if quoted else _TIMES
        ratios = analysis.ratios_between(compared, axis, a, b)
        grids.append(_grid(name, title, note, ratios, axis, missing if name == "pinned" else ""))
    return {"view": view, "badge": runs_facts.badge(PATH, view), "grids": grids}


def _grid(name: str, title: str, note: str, compared: pd.DataFrame, axis: str, missing: str = "") -> dict[str, Any]:
    """A table of ratios: settings below each other, batch sizes side by side."""
    batches = sorted(compared["batch_size"].astype(int).unique())
    rows = []
    for setting, ratios in analysis.by_batch(compared, axis):
        counts = sorted({int(ratio["n"]) for ratio in ratios.values()})
        n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        cells = [estimate(ratios[batch], "number") if batch in ratios else "–" for batch in batches]
        rows.append((*_setting(setting), *cells, n))
    columns = ["What ran", "Setting", *(f"batch {batch}" for batch in batches), "n"]
    return {"name": name, "title": title, "note": note, "columns": columns, "rows": rows, "missing": missing}


def _setting(values: Mapping[str, Value | None]) -> tuple[str, str]:
    kind = "the loader alone"
    if values["mode"] == "train":
        kind = f"emulated step, {values['step_ms']:g} ms" if values["step"] in EMULATED_STEPS else "real training"
    parts = [words.sized(values["workload"], values["patch_size"]), str(values.get("storage_format") or "")]
    if "num_workers" in values:
        parts.append(words.plural(int(values["num_workers"] or 0), "worker"))
    if values.get("pin_memory"):
        parts.append("pinned")
    return kind, ", ".join(filter(None, parts))
