"""The front page: one number, one chart, the setting to copy, and ways to everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.claims import NOT_TESTABLE
from feedrate.analysis.estimate import RATIO, Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.citation import together
from feedrate.charts.figure import Chart, Figure
from feedrate.pages import descriptions
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView, leading, place
from feedrate.pages.tasks import gain_settings, what_ran
from feedrate.pages.template import render
from feedrate.pages.verdicts import Verdicts
from feedrate.plan.suite import Suite
from feedrate.questions.home.charts import Machines, machine_gains, machine_workers
from feedrate.questions.runs import facts as runs_facts
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME, SETTINGS

PATH = "index.md"
TITLE = "How fast can a machine feed its accelerator?"
_ARGUMENTS = {
    **{name: name for name in ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")},
    "start_method": "multiprocessing_context",
}
"""Settings that are arguments of PyTorch's DataLoader, and what it calls them."""
_SAME = ("storage_format", "batch_size")
"""Settings that both sides of a gain have."""


def call(gain: Mapping[str, Any]) -> str:
    """Write the DataLoader to copy: what the better side of a gain has otherwise than PyTorch's default.

    Of another loader it names the setting: none of them is called alike.
    """
    given = {name: BY_NAME[name].type(gain[name]) for name in SETTINGS if name in gain and not pd.isna(gain[name])}
    values = {name: value for name, value in given.items() if value != BY_NAME[name].default}
    chosen: dict[str, object] = {"batch_size": int(gain["batch_size"])}
    chosen |= {_ARGUMENTS[name]: value for name, value in values.items() if name in _ARGUMENTS}
    written = f"DataLoader(dataset, {', '.join(f'{name}={value!r}' for name, value in chosen.items())})"
    others = {name: value for name, value in values.items() if name not in (*_ARGUMENTS, *_SAME)}
    if "loader" in others:
        return f"{gain_settings(gain)}, batch {chosen['batch_size']}"
    return f"{written}  # and {descriptions.changed(others)}" if others else written


def speaking(runs: Sequence[RunView]) -> list[RunView]:
    """Keep the run that speaks for each machine and device, of those that ask which settings suit it."""
    return leading([view for view in runs if view.for_machines])


def headline(runs: Sequence[RunView]) -> dict[str, Any] | None:
    """Write the gain that stands first: that of real training on a GPU, else before an emulated step."""
    gained = []
    for view in runs:
        on_gpu = view.manifest.device == "cuda"
        kinds = (TRAIN, EMULATED, LOAD) if on_gpu else (EMULATED, TRAIN, LOAD)
        rows = [row for row in rows_of(view.headlines) if row["gain"] and row["gain"]["verdict"] == "faster"]
        if task := min(rows, key=lambda row: kinds.index(row["kind"]), default=None):
            gained.append((on_gpu and task["kind"] == TRAIN, view, task))
    if not gained:
        return None
    _, view, task = next((one for one in gained if one[0]), gained[0])
    gain, images = task["gain"], words.sized(task["workload"], task["patch_size"])
    return {
        "view": view,
        "gain": gain,
        "gained": gain_settings(gain),
        "times": Estimate.of_row(gain, RATIO, "ratio").text(),
        "call": call(gain),
        "ran": f"{what_ran(task)}; {images}, {gain['storage_format']}, batch {gain['batch_size']}",
        "badge": runs_facts.badge(PATH, view),
    }


def drawn(chart: Chart, runs: Sequence[RunView], **more: int) -> tuple[Figure, list[RunView]]:
    """Draw speed by workers (of the ``most`` tasks), or what better settings gain, with the runs that it is of."""
    first, machines = speaking(runs), named(runs)
    frames = [getattr(view, chart.reads) for view in first]
    figure = chart.draw(pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(), machines=machines, **more)
    shown = {row["run"] for row in figure.rows}
    return figure, [view for view in first if view.manifest.run_id in shown]


def named(runs: Sequence[RunView]) -> Machines:
    """Name each machine and device that the page speaks of."""
    first = speaking(runs)
    ids: dict[str, set[str]] = {}
    for view in first:
        ids.setdefault(view.name, set()).add(view.machine_id)
    # Machines of one name may differ in memory or limits: then their ids tell them apart.
    alike = {view.where: f" ({view.machine_id[-4:]})" for view in first if len(ids[view.name]) > 1}
    return {view.where: (view.name + alike.get(view.where, ""), view.cores) for view in first}


def page(runs: Sequence[RunView], suites: Sequence[tuple[str, str, Suite]], verdicts: Verdicts) -> Page:
    """Write the front page."""
    figures = {"workers": drawn(machine_workers, runs), "gains": drawn(machine_gains, runs)}
    placed = {
        name: place(figure, name, PATH, together(view.origin for view in views))
        for name, (figure, views) in figures.items()
        if figure.panels
    }
    body = render(
        "home/page.md",
        page=PATH,
        title=TITLE,
        headline=headline(speaking(runs)),
        measured=_measured(runs),
        placed=placed,
        suites=[(path, content.question) for _, path, content in suites],
        claims=len(verdicts.results),
        **_tally(verdicts),
    )
    return Page(PATH, TITLE, body, placed, hide=("navigation", "toc"))


def _measured(runs: Sequence[RunView]) -> str:
    """How many machines these are; whether an accelerator is among them, or a sleep stands in for one."""
    machines = {view.machine_id for view in runs}
    kinds = {kind for view in speaking(runs) for kind in view.headlines["kind"]}
    there = any(view.manifest.machine.gpu_count for view in runs)
    no_gpu = (", no GPU was used" if there else ", no GPU among them") + (
        ": a sleep stands in for a GPU’s step" if EMULATED in kinds else ""
    )
    used = any(view.manifest.device == "cuda" for view in runs)
    return f"{words.plural(len(machines), 'machine')}{'' if used else no_gpu}" if runs else ""


def _tally(verdicts: Verdicts) -> dict[str, Any]:
    """The platform that tested most claims, its verdicts with how many of each, and claims that no platform tested."""
    platforms, results = range(len(verdicts.platforms)), verdicts.results.values()
    most = max(platforms, key=lambda at: sum(of_claim[at].tested for of_claim in results), default=None)
    untested = sum(not any(result.tested for result in of_claim) for of_claim in results)
    if most is None:
        return {"tally": [], "platform": "", "untested": 0, "elsewhere": 0}
    tally = [(verdict, count) for verdict, count in verdicts.tally(most).items() if verdict != NOT_TESTABLE]
    elsewhere = len(verdicts.results) - untested - sum(count for _, count in tally)
    name = verdicts.platforms[most].name if len(platforms) > 1 else ""
    return {"tally": tally, "platform": name, "untested": untested, "elsewhere": elsewhere}
