"""What lists of runs and the pages of runs have in common: grade, tier, facts, files; and runs as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.blocks import successful
from feedrate.charts.citation import Citation, data_hash
from feedrate.charts.embed import forms_html
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.pages.template import table
from feedrate.schema import words
from feedrate.schema.window import STEADY
from feedrate.store.marks import TIERS

STOPPED = {
    "target": "every interval was as narrow as the protocol asks",
    "blocks": "it had as many repetitions as the protocol allows",
    "budget": "its time budget was used up",
    "interrupted": "somebody stopped it",
    "ended": "the script ended",
}
SEARCH_STOPPED = {**STOPPED, "target": "the bound is within what was asked for"}
FILES = {
    "run.json": "the manifest",
    "trials.parquet": "a row a measurement, the manifest embedded",
    "steps.parquet": "a row a step of the first steps of each measurement",
    "telemetry.parquet": "a row a sample of the machine",
}
"""Files of a run, and what each holds."""
_COLUMNS = ("Run", "Grade", "Tier", "Machine", "Suites", "Date", "Repetitions", "Settings", "Failed")


def unsettled(trials: pd.DataFrame) -> str:
    """Say how many measurements had not settled; empty where all had."""
    ended = successful(trials)
    # The second half of a cold window is the faster one, as more has been read ahead: as the flag's rule has it.
    judged = ended[ended["steady"].notna() & ended["page_cache"].ne("cold").fillna(True)]
    if not (count := int((~judged["steady"].astype(bool)).sum())):
        return ""
    cold = " (cold ones left out)" if ended["page_cache"].eq("cold").any() else ""
    text = f"{count:,} of {words.plural(len(judged), 'measurement')}{cold} had not settled"
    return f"{text}: the halves of the window differ by more than {words.percent(1 - STEADY)}."


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
    run, loop = view.manifest, script_name(view)
    settings = words.plural(run.cells, "setting")
    settings += "" if run.script else f", from {words.plural(run.combinations, 'combination')}"
    of_sweeps = {
        "Measurements": ", ".join(f"{count:,} {name}" for name, count in run.outcomes.items()),
        "Suites": words.listed(run.suites) or "none",
        "Seed": f"{run.seed}",
    }
    repeated = f"{settings}, in up to {words.plural(run.blocks, 'repetition')}"
    return {
        "Device": run.device,
        "Repeat it": markup.code(run.command),
        "Began": f"{descriptions.day(run.started_at)} ({run.started_at})",
        "Took": descriptions.minutes(run.started_at, run.ended_at),
        "Measured": f"its loop, in {run.blocks:,} stretches" if loop else repeated,
        **({} if loop else of_sweeps),
        "Stopped": (SEARCH_STOPPED if run.search else STOPPED).get(run.stop_reason, run.stop_reason),
        "PyTorch": run.software.torch or "unknown",
        "Version": f"feedrate {run.feedrate_version}, protocol {run.protocol_version}",
    }


def files(view: RunView) -> dict[str, Path]:
    """Give a run's files: path below the site, ending in a name of ``FILES``, to what is copied there."""
    there = {name: view.run.folder / name for name in FILES}
    return {f"runs/{view.slug}/{name}": path for name, path in there.items() if path.is_file()}


def downloads(view: RunView) -> list[tuple[Markup, str]]:
    """Link the files of a run from its page, each with what it holds."""
    return [(markup.download(view.page, target, path.name), FILES[path.name]) for target, path in files(view).items()]


def runs_table(runs: Sequence[RunView], path: str) -> Markup:
    """Write runs as a table on the page of a path, in their order; all but the grade come from their manifests."""
    rows = []
    for view in runs:
        run, link, label = view.manifest, markup.link(path, view.page, view.manifest.run_id), view.beside.label
        name = markup.two_lines(link, label, style="fr-label")
        where = view.name, words.listed(suites(view)), descriptions.day(run.started_at)
        numbers = (str(count) for count in (run.blocks, run.cells, view.failed))
        rows.append((name, badge(path, view), tiers(path, [view]), *where, *numbers))
    return table("Runs", _COLUMNS, rows, _COLUMNS[-3:], stack=True)


def run_forms(view: RunView) -> Markup:
    """Write the citation of a run in every form: by its file of trials, which embeds its manifest."""
    content = (view.run.folder / "trials.parquet").read_bytes()
    address = f"{view.page.removesuffix('.md')}.html"
    title = f"feedrate run {view.manifest.run_id}"
    cited = Citation(view.slug, title, view.origin, data_hash(content), address, "run")
    return forms_html(cited.forms(), cited.title, cited.link)
