"""One page a suite: the question, what the numbers answer, and its charts for the run that speaks for each machine."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from feedrate.charts.figure import charts_by_name
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import RunView, draw, leading, place
from feedrate.pages.tasks import answer
from feedrate.pages.template import render
from feedrate.pages.verdicts import Verdicts
from feedrate.plan import suite
from feedrate.plan.suite import CALIBRATION, CLAIMS, Suite
from feedrate.questions.calibration import page as calibration_page
from feedrate.questions.claims import page as claims_page
from feedrate.questions.cores import page as cores_page
from feedrate.questions.loader import page as loader_page
from feedrate.questions.loaders import page as loaders_page
from feedrate.questions.runs import facts as runs_facts
from feedrate.questions.storage import page as storage_page
from feedrate.questions.workers import page as workers_page
from feedrate.schema import plugins
from feedrate.schema.axes import SCRIPT, TUNE

CHARTED = 2
"""Runs whose charts a page has room for, with some thirty kilobytes each, compressed."""


def found(runs: Sequence[RunView]) -> list[tuple[str, str, Suite]]:
    """List the suites that have results: name, page and content; one that this version lacks shows every chart.

    What asks about machines comes before what asks about feedrate. The suite of all claims has a page of another kind,
    and of scripts there are the pages of their runs.
    """
    elsewhere = {CLAIMS, SCRIPT, TUNE}
    names = sorted(
        {name for view in runs for name in view.suites} - elsewhere, key=lambda name: (name == CALIBRATION, name)
    )
    shipped = plugins.names("feedrate.suites")
    every = tuple(charts_by_name())
    return [
        (
            name,
            f"suites/{markup.slug(name)}.md",
            suite.load(name) if name in shipped else Suite(f"What did the suite {name} measure?", every),
        )
        for name in names
    ]


def page(name: str, path: str, content: Suite, runs: Sequence[RunView], verdicts: Verdicts | None = None) -> Page:
    """Write the page of the suite of a name from all runs, newest first, and from what they say of claims, if given."""
    figures: dict[str, Placed] = {}
    files: dict[str, str] = {}
    parts: list[dict[str, Any]] = []
    measured = leading([view for view in runs if name in view.suites])
    for view in measured:
        before, after, more = _around_charts(name, path, view, verdicts)
        files |= more
        charts = None
        if len(parts) < CHARTED:
            charts = []
            for chart in content.charts:
                figure = draw(chart, view, name)
                placed = place(figure, f"{markup.slug(name)}-{chart}-{view.mark}", path, view.origin)
                figures[placed.name] = placed
                charts.append((figure.title, f"{chart}-{view.mark}", placed.name))
        notes = [*map(descriptions.note, view.manifest.substitutions)]
        section = {"view": view, "badge": runs_facts.badge(path, view), "notes": notes, "charts": charts}
        parts.append({**section, "before": before, "after": after})
    body = render(
        "suites/page.md",
        name=name,
        path=path,
        question=content.question,
        about=_about(name),
        places=[Markup('<a href="#{}">{}</a>').format(view.mark, view.name) for view in measured],
        runs=parts,
        explore="explore.md",
        claims=_joined(claims_page.suite_section(verdicts, name, path)) if verdicts else "",
    )
    return Page(path, name.capitalize(), body, figures, files)


def _about(name: str) -> list[Markup] | None:
    """What the suite's own file says beyond its first line, by paragraph; None where this version lacks the suite."""
    if name not in plugins.names("feedrate.suites"):
        return None
    text = inspect.getdoc(plugins.load("feedrate.suites", name)) or ""
    return [descriptions.prose(" ".join(paragraph.split())) for paragraph in text.split("\n\n")[1:]]


def _around_charts(
    name: str, path: str, view: RunView, verdicts: Verdicts | None
) -> tuple[Markup, Markup, Mapping[str, str]]:
    """What stands before the charts of a run (the answer), what after them, and the files of that."""
    planted, storage = calibration_page.section(view, name), storage_page.sections(view, name, path)
    loaders = loaders_page.sections(view, name) if name == loaders_page.SUITE else ("", "")
    before: str = planted or storage[0] or loaders[0]
    if name == cores_page.SUITE:
        before = cores_page.section(view, name)
    elif not before:
        text = answer(view.headlines_of(name)) or (claims_page.answer(verdicts, name, view) if verdicts else "")
        before = markup.paragraph(text, "fr-answer") if text else ""
    after = [storage[1], loaders[1]]
    after += [workers_page.section(view, name)] if name == workers_page.SUITE else []
    why, files = ("", dict[str, str]()) if planted else loader_page.section(view, name, path)
    return _joined([before]), _joined([*after, why]), files


def _joined(parts: Iterable[str]) -> Markup:
    return Markup("\n".join(parts))  # noqa: S704 - sections of pages escape what comes from records
