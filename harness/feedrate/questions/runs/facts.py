"""What lists of runs and the pages of runs have in common: grade, tier, facts, files; and runs as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.pages.template import table
from feedrate.schema import words
from feedrate.store.marks import TIERS

STOPPED = {
    "target": "every question is answered as well as the protocol wants",
    "blocks": "the most repetitions that the protocol allows had run",
    "budget": "the time that it was given was used up",
    "interrupted": "somebody stopped it",
    "ended": "the script ended",
}
SEARCH_STOPPED = {**STOPPED, "target": "the bound is within what was asked for"}
FILES = {
    "run.json": "the manifest",
    "trials.parquet": "a row a measurement, the manifest embedded",
    "steps.parquet": "a row a step of the first steps of each measurement",
    "telemetry.parquet": "a row a probe sample",
}
"""Files of a run, and what each holds."""
NUMBERS = ("Repetitions", "Settings", "Failed")
"""How much was measured: the last columns of every table of runs."""
Cell = Callable[[RunView, str], str]
"""What a run has in a column, as text or ``Markup`` on the page of a path."""


def script_name(view: RunView) -> str:
    """What the script is called that a run watched as it is; empty of other runs."""
    return "" if view.manifest.search else view.manifest.script


def suites(view: RunView) -> list[str]:
    """What a run asked; of a script with its name."""
    name = view.manifest.script
    return [f"{suite} {name}".strip() for suite in view.manifest.suites]


def badge(page: str, view: RunView) -> Markup:
    """Write a run's grade as a link to the rules."""
    return markup.link(page, "methodology.md#grade", f"grade {view.grade.letter}", "fr-grade")


def tiers(page: str, runs: Sequence[RunView]) -> Markup:
    """Write who vouches for some runs: one tier, or how many of each; ``site/scripts/site/tiers.js`` finds the link."""
    held = [view.beside.tier for view in runs]
    counts = [(held.count(name), name) for name in reversed(TIERS) if name in held]
    text = counts[0][1] if len(counts) == 1 else ", ".join(f"{count:,} {name}" for count, name in counts)
    return markup.link(page, "run.md#tiers", text, "fr-tier")


def beside(view: RunView) -> dict[str, str]:
    """Name who vouches for a run, and what its submitter says of it."""
    texts = {"Label": view.beside.label, "Submitter’s note": view.beside.note}
    return {"Tier": tiers(view.page, [view])} | {name: text for name, text in texts.items() if text}


def short(view: RunView) -> dict[str, str]:
    """Name what was measured, when and with what, from the manifest alone."""
    run = view.manifest
    began = {
        "Device": run.device,
        "Repeat it": markup.code(run.command),
        "Began": f"{descriptions.day(run.started_at)} ({run.started_at})",
        "Took": descriptions.minutes(run.started_at, run.ended_at),
    }
    stopped = {"Stopped": (SEARCH_STOPPED if run.search else STOPPED).get(run.stop_reason, run.stop_reason)}
    cells = words.plural(run.cells, "setting" if run.search else "cell")
    version = f"feedrate {run.feedrate_version}, protocol {run.protocol_version}"
    if script_name(view):
        measured = {"Measured": f"its loop, in {run.blocks:,} stretches"}
        return {**began, **measured, **stopped, "PyTorch": run.software.torch or "unknown", "Version": version}
    return {
        **began,
        "Measured": f"{cells}, in up to {words.plural(run.blocks, 'repetition')}",
        "Measurements": ", ".join(f"{count:,} {name}" for name, count in run.outcomes.items()),
        **stopped,
        "Suites": words.listed(run.suites) or "none",
        "PyTorch": run.software.torch or "unknown",
        "Version": f"{version}, seed {run.seed}",
    }


def files(view: RunView) -> dict[str, Path]:
    """Give a run's files: path below the site, ending in a name of ``FILES``, to what is copied there."""
    there = {name: view.run.folder / name for name in FILES}
    return {f"runs/{view.slug}/{name}": path for name, path in there.items() if path.is_file()}


def downloads(view: RunView) -> list[tuple[Markup, str]]:
    """Link the files of a run from its page, each with what it holds."""
    return [(markup.download(view.page, target, path.name), FILES[path.name]) for target, path in files(view).items()]


def _run(view: RunView, path: str) -> Markup:
    """A run's id as a link, below it what its submitter calls it."""
    link = markup.link(path, view.page, view.manifest.run_id)
    return markup.two_lines(link, view.beside.label, "fr-label") if view.beside.label else link


_CELLS: Mapping[str, Cell] = {
    "Run": _run,
    "Grade": lambda view, path: badge(path, view),
    "Tier": lambda view, path: tiers(path, [view]),
    "Machine": lambda view, _: view.name,
    "Date": lambda view, _: descriptions.day(view.manifest.started_at),
    "Suites": lambda view, _: words.listed(suites(view)),
    "Repetitions": lambda view, _: str(view.manifest.blocks),
    "Settings": lambda view, _: str(view.manifest.cells),
    "Failed": lambda view, _: str(view.failed),
}
"""By heading. All but the grade come from the manifest alone, which ten thousand runs can afford."""


def runs_table(caption: str, runs: Sequence[RunView], path: str, columns: Sequence[str]) -> Markup:
    """Write runs as a table, in their order.

    Args:
        caption: says to a screen reader what the table holds.
        runs: a row each.
        path: of the page that holds it.
        columns: headings of ``_CELLS``, in the order of the table; ``NUMBERS`` come behind them.
    """
    names = (*columns, *NUMBERS)
    cells = [[_CELLS[name](view, path) for name in names] for view in runs]
    return table(caption, names, cells, NUMBERS, stack=True)
