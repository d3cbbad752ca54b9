"""One page a run: what it says of itself, how far to trust it, what failed and why, the raw files.

A run that was withdrawn keeps its page and its files, so that links and citations lead to the reason; no chart, table
or verdict of this site draws on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from feedrate.analysis import noise
from feedrate.analysis.blocks import successful
from feedrate.analysis.diagnosis import diagnose
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.steps import cross_check
from feedrate.charts.figure import Figure
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import RULE, headline_table
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import RunView, draw, place
from feedrate.pages.template import render
from feedrate.plan import suite
from feedrate.questions.runs import facts, script
from feedrate.questions.runs import search_charts as search
from feedrate.schema import words
from feedrate.store.manifest import Dataset

_MOST_LISTED = 2_000
"""Failures of a list: with more a page would weigh megabytes."""
_OF_RUNS = ("drift", "telemetry")
"""Charts of a run as a whole."""
_LABELS = {
    "ci_target_pct": "interval wanted, ± %",
    "control_every": "measurements between two of the control setting",
    "blocks": "repetitions, fewest and most",
}
"""What the manifest's names are called, where they do not say it themselves."""


def page(view: RunView) -> Page:
    """Write the page of a run; it copies the run's files beside it."""
    run, files = view.manifest, facts.files(view)
    charts = _charts(view)
    failed = view.trials[view.trials["outcome"].ne("ok")]
    body = render(
        "runs/page.md",
        page=view.page,
        run=run,
        grade=view.grade,
        summary=_summary(view),
        script=script.section(view),
        search=search.section(view),
        searches=search.searches(view),
        placed={name: placed for name, (_, placed) in charts.items()},
        of_script=[chart for name, chart in charts.items() if name not in (*_OF_RUNS, *script.FIGURES)],
        of_run=[charts[name] for name in _OF_RUNS if name in charts],
        headlines=headline_table(view.headlines),
        rule=RULE,
        notes=list(map(descriptions.note, run.substitutions)),
        cautions=_cautions(view),
        disturbed=list(_disturbed(view)),
        clocks=list(_clocks(view)),
        failures=[_failure(row) for row in rows_of(failed.sort_values(["block", "position"]).head(_MOST_LISTED))],
        failed=len(failed),
        details=_details(view),
        datasets=[_packed(data) for data in run.datasets],
        heading_words=f"{', '.join(facts.suites(view))} on {view.name}",
        counted=[
            (f"{entry.count:,}", became, entry.reason)
            for became, parts in (("merged", run.merged), ("left out", () if run.search else run.excluded))
            for entry in parts
        ],
        downloads=facts.downloads(view),
        citation=facts.run_forms(view) if f"runs/{view.slug}/trials.parquet" in files else "",
    )
    figures = {placed.name: placed for _, placed in charts.values()}
    return Page(view.page, f"Run {run.run_id}", body, figures, files, listed=False, hide=("navigation",))


def _charts(view: RunView) -> dict[str, tuple[Figure, Placed]]:
    """Every chart that the run has anything for, by its name, in the order of the page."""
    own = suite.load(next(iter(view.manifest.suites))).charts if view.manifest.script else ()
    figures = {name: make(view) for name, make in script.FIGURES.items()}
    figures |= {name: draw(name, view) for name in (*own, *_OF_RUNS)}
    return {
        name: (figure, place(figure, f"{name}-{view.slug}", view.page, view.origin, raster=name not in _OF_RUNS))
        for name, figure in figures.items()
        if figure and figure.panels
    }


def _clocks(view: RunView) -> Iterator[tuple[object, ...]]:
    """Settings in which a host that waits after every phase is held against the device's clock."""
    settings = {row["cell_id"]: descriptions.setting(row) for row in rows_of(view.cells)}
    for row in rows_of(cross_check(view.trials)) if view.manifest.device == "cuda" else ():
        spread = words.interval(row["lo"], row["hi"])
        yield settings[row["cell_events"]], row["phase"], f"{row['ratio']:.2f}", spread, row["n"]


def _failure(row: Mapping[Any, Any]) -> tuple[object, ...]:
    said = [text if isinstance(text := row[name], str) else "" for name in ("error_kind", "error_message")]
    return row["block"], row["position"], descriptions.setting(row), row["outcome"], Markup("<br>").join(said)


def _packed(data: Dataset) -> tuple[object, ...]:
    return (
        Markup("<br>").join((data.name, *data.notes)),
        data.storage_format,
        f"{data.count:,}",
        descriptions.size(data.bytes),
        f"{data.pack_s:.1f} s",
        markup.code(data.data_hash),
    )


def withdrawn_page(view: RunView) -> Page:
    """Write the page of a run that was withdrawn, as its ``beside.withdrawn`` says; it copies the run's files."""
    run = view.manifest
    machine = {"Machine": view.name, "Machine id": markup.code(view.machine_id)}
    body = render(
        "runs/withdrawn.md",
        run=run,
        withdrawn=view.beside.withdrawn,
        summary=machine | facts.short(view) | facts.beside(view),
        downloads=facts.downloads(view),
    )
    title = f"Run {run.run_id}, withdrawn"
    return Page(view.page, title, body, files=facts.files(view), listed=False, hide=("navigation",))


def _summary(view: RunView) -> dict[str, str]:
    run = view.manifest
    grade = Markup('<a href="#how-far-to-trust-it"><strong>{}</strong>, and why</a>').format(view.grade.letter)
    machine = Markup('<a href="#machine">{}</a>').format(view.name)
    summary = {"Grade": grade, **facts.beside(view), "Machine": machine}
    if run.script:
        return summary | facts.short(view)
    summary |= {"Machine id": markup.code(run.machine.machine_id), **facts.short(view)}
    if run.ceilings:
        text = f"{words.plural(run.ceilings, 'setting')}: stages of training settings, each alone"
        summary["Limits added"] = markup.link(view.page, "methodology.md#ceilings", text)
    return summary | {"Profile": run.profile, "Parent’s CPU": f"{words.per_cent(run.parent_cpu_pct, 1)} of one core"}


def _cautions(view: RunView) -> dict[str, Any]:
    """What makes numbers of a run less certain."""
    ended = successful(view.trials)
    return {
        "single": ended["block"].nunique() == 1,
        "dependent": diagnose(view.trials).reason,
        "unsettled": facts.unsettled(view.trials),
        "left": int(view.trials["left_processes"].fillna(0).sum()),
    }


def _disturbed(view: RunView) -> Iterator[tuple[str, ...]]:
    """Which flags how many trials carry."""
    if not len(ended := successful(view.trials)):
        return
    for row in rows_of(noise.flagged(ended)):
        if row["watched"] or row["trials"]:
            link = markup.link(view.page, f"methodology.md#flag-{row['flag']}", row["flag"])
            worst = f"{words.number(row['worst'])} {row['unit']}" if words.is_number(row["worst"]) else "–"
            yield link, f"{row['trials']:,}", words.percent(row["share"]), worst


def _details(view: RunView) -> dict[str, dict[str, str]]:
    """What the manifest records of machine, storage, software and protocol."""
    run = view.manifest
    sections = {
        "Machine": run.machine.model_dump(exclude={"storage", "machine_id"}),
        "Storage": run.machine.storage.model_dump() if run.machine.storage else {},
        "Software": run.software.model_dump(exclude_none=True) | run.runtime,
        "Protocol": {} if run.script else run.protocol.model_dump(),
    }
    return {
        title: {_label(name): _fact(name, value) for name, value in values.items()}
        for title, values in sections.items()
        if values
    }


def _label(name: str) -> str:
    spoken = _LABELS.get(name, name).removesuffix("_bytes").removesuffix("_s").replace("_", " ")
    return re.sub(r"\b(cpu|gpu)\b", lambda match: match[1].upper(), spoken)


def _fact(name: str, value: Any) -> str:
    if value is None:
        return "none" if name.startswith(("gpu", "cpu_quota", "memory_limit")) else "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    if isinstance(value, str):  # a stranger's name may end as ours do
        return value
    if name.endswith("_bytes"):
        return descriptions.size(value)
    return f"{value:g} s" if name.endswith("_s") else str(value)
