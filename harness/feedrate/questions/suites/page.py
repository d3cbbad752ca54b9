"""One page a suite: the question, what the numbers answer, and its charts for the run that speaks for each machine."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

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
from feedrate.questions.suites.other_runs import between
from feedrate.questions.workers import page as workers_page
from feedrate.schema import plugins
from feedrate.schema.axes import SCRIPT, TUNE

BOOST = 4
"""Of the search: answers stand before glossary and dictionary, which have every word of a question too."""
CHARTED = 2
"""Runs whose charts a page has room for, with some thirty kilobytes each, compressed."""


def found(runs: Sequence[RunView]) -> list[tuple[str, str, Suite]]:
    """List the suites that have results: name, page and content; one that this version lacks shows the charts of all.

    What asks about machines comes before what asks about feedrate. The suite of all claims has a page of another kind,
    and of scripts there are the pages of their runs.
    """
    elsewhere = {CLAIMS, SCRIPT, TUNE}
    names = sorted(
        {name for view in runs for name in view.suites} - elsewhere, key=lambda name: (name == CALIBRATION, name)
    )
    shipped = plugins.names("feedrate.suites")
    every = tuple(dict.fromkeys(chart for name in shipped for chart in suite.load(name).charts))
    return [
        (
            name,
            f"suites/{markup.slug(name)}.md",
            suite.load(name) if name in shipped else Suite(f"What did the suite {name} measure?", every),
        )
        for name in names
    ]


@dataclass(frozen=True, slots=True)
class Section:
    """What a suite's page shows of one run."""

    before: Markup
    """The answer, which stands before the charts."""
    caution: str
    """What makes its numbers less certain; or empty."""
    charts: Sequence[tuple[str, str, str]] | None
    """Title, id and place of each chart; None where the page has no room for them."""
    after: Markup
    figures: Mapping[str, Placed]
    files: Mapping[str, str]


def measured(name: str, runs: Sequence[RunView]) -> list[RunView]:
    """Keep the run that speaks for each machine and device on the page of a suite."""
    return leading([view for view in runs if name in view.suites])


def section(name: str, path: str, content: Suite, view: RunView, *, charted: bool) -> Section:
    """Write what the page of a suite shows of a run, with its charts or without."""
    planted, storage = calibration_page.section(view, name), storage_page.sections(view, name, path)
    loaders = loaders_page.sections(view, name) if name == loaders_page.SUITE else ("", "")
    before: str = planted or storage[0] or loaders[0]
    if name == cores_page.SUITE:
        before = cores_page.section(view, name)
    elif not before:
        text = answer(view.headlines_of(name))
        before = markup.paragraph(text, "fr-answer") if text else ""
    after = [storage[1], loaders[1]]
    after += [workers_page.section(view, name)] if name == workers_page.SUITE else []
    why, files = ("", dict[str, str]()) if planted else loader_page.section(view, name, path)
    figures: dict[str, Placed] = {}
    charts = []
    for chart in content.charts if charted else ():
        figure = draw(chart, view, name)
        placed = place(figure, f"{markup.slug(name)}-{chart}-{view.mark}", path, view.origin)
        figures[placed.name] = placed
        charts.append((figure.title, f"{chart}-{view.mark}", placed.name))
    caution = runs_facts.unsettled(view.trials_of(name))
    return Section(_joined([before]), caution, charts if charted else None, _joined([*after, why]), figures, files)


def page(
    name: str,
    path: str,
    content: Suite,
    runs: Sequence[RunView],
    verdicts: Verdicts | None = None,
    made: Mapping[str, Section] | None = None,
    of_cells: Sequence[Mapping[str, Any]] = (),
) -> Page:
    """Write the page of the suite of a name from all runs, newest first, and from what they say of claims, if given.

    ``made`` has the :func:`section` of each run by its page; without, they are made here. ``of_cells`` are
    the files of all runs' cells, which say how far other runs of a machine are off.
    """
    first = measured(name, runs)
    made = made or {
        view.page: section(name, path, content, view, charted=at < CHARTED) for at, view in enumerate(first)
    }
    sections = [made[view.page] for view in first]
    parts = []
    for view, of_run in zip(first, sections, strict=True):
        before = of_run.before
        if not before and verdicts and (text := claims_page.answer(verdicts, name, view)):
            before = _joined([markup.paragraph(text, "fr-answer")])
        notes = [*map(descriptions.note, view.manifest.substitutions)]
        notes += filter(None, [of_run.caution, between(view.manifest.run_id, of_cells)])
        shown = {"before": before, "charts": of_run.charts, "after": of_run.after}
        parts.append({"view": view, "badge": runs_facts.badge(path, view), "notes": notes, **shown})
    body = render(
        "suites/page.md",
        name=name,
        path=path,
        question=content.question,
        about=_about(name),
        places=[Markup('<a href="#{}">{}</a>').format(view.mark, view.name) for view in first],
        runs=parts,
        explore="explore.md",
        claims=_joined(claims_page.suite_section(verdicts, name, path)) if verdicts else "",
    )
    figures = {place: placed for of_run in sections for place, placed in of_run.figures.items()}
    files = {place: text for of_run in sections for place, text in of_run.files.items()}
    return Page(path, name.capitalize(), body, figures, files, boost=BOOST)


def _about(name: str) -> list[Markup] | None:
    """What the suite's own file says beyond its first line, by paragraph; None where this version lacks the suite."""
    if name not in plugins.names("feedrate.suites"):
        return None
    text = inspect.getdoc(plugins.load("feedrate.suites", name)) or ""
    return [descriptions.prose(" ".join(paragraph.split())) for paragraph in text.split("\n\n")[1:]]


def _joined(parts: Iterable[str]) -> Markup:
    return Markup("\n".join(parts))  # noqa: S704 - sections of pages escape what comes from records
