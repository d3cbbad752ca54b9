"""One page a suite: the question, what the numbers answer, its charts for the newest run of each machine and device."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Mapping, Sequence
from html import escape

from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import answer
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import RunView, draw, newest, place
from feedrate.pages.verdicts import Verdicts
from feedrate.plan import suite
from feedrate.plan.suite import CALIBRATION, CLAIMS, Suite
from feedrate.questions.calibration import page as calibration_page
from feedrate.questions.claims import page as claims_page
from feedrate.questions.home.page import EXPLORE
from feedrate.questions.loader import page as loader_page
from feedrate.questions.runs import trust
from feedrate.questions.storage.page import StorageSection
from feedrate.questions.workers import page as workers_page
from feedrate.schema import plugins, words

_ROOM = 60_000
"""Bytes of charts, compressed, that a page has room for; the run that was made last has its own in any case."""


def found(runs: Sequence[RunView]) -> list[tuple[str, str, Suite]]:
    """List the suites that have results: name, page and content; one that this version lacks shows every chart.

    What asks about machines comes before what asks about feedrate. The suite of all claims has a page of another kind.
    """
    names = sorted(
        {name for shown in runs for name in shown.suites} - {CLAIMS}, key=lambda name: (name == CALIBRATION, name)
    )
    known = plugins.names("feedrate.suites")
    every = plugins.names("feedrate.questions.*.charts")
    return [
        (
            name,
            f"suites/{markup.slug(name)}.md",
            suite.load(name) if name in known else Suite(f"What did the suite {name} measure?", every),
        )
        for name in names
    ]


def _about(name: str) -> str:
    """What the suite's own file says beyond its first line: what is done, then, smaller, what that does not show."""
    if name not in plugins.names("feedrate.suites"):
        return markup.paragraph("This version of feedrate does not have the suite; all charts are shown.", "fr-lead")
    text = inspect.getdoc(plugins.load("feedrate.suites", name)) or ""
    first, *more = (" ".join(part.split()) for part in text.split("\n\n")[1:] or [""])
    notes = "".join(f'<p class="fr-note">{descriptions.prose(part)}</p>\n' for part in more)
    return f'<p class="fr-lead">{descriptions.prose(first)}</p>\n{notes}' if first else ""


def page(name: str, path: str, content: Suite, runs: Sequence[RunView], told: Verdicts | None = None) -> Page:
    """Write a suite's page.

    Args:
        name: the suite, as the records spell it.
        path: of the page.
        content: its question and charts.
        runs: all runs, newest first.
        told: what they say of the sources' claims, if that is to be shown too.
    """
    body = [
        f'<p class="fr-eyebrow">Suite: {markup.entities(name)}</p>\n\n# {markup.entities(content.question)}\n',
        _about(name),
    ]
    figures: dict[str, Placed] = {}
    files: dict[str, str] = {}
    drawn = 0
    measured = newest([shown for shown in runs if name in shown.suites])
    body.append(_places(measured))
    for shown in measured:
        body += [markup.heading(2, shown.name, shown.mark), _origin(shown, path)]
        planted, compared = calibration_page.section(shown, name), StorageSection(shown, name)
        body += planted or [compared.answers()]
        if not planted and not compared:
            said = answer(shown.headlines_of(name)) or (claims_page.answer(told, name, shown) if told else "")
            body += [markup.paragraph(said, "fr-answer")] if said else []
        if _fits(figures, drawn):
            drawn += 1
            for chart in content.charts:
                title, placed = _chart(chart, shown, name, path)
                figures[placed.name] = placed
                body += [markup.heading(3, title, f"{chart}-{shown.mark}"), markup.slot(placed.name), "\n"]
        else:
            body.append(_elsewhere(path))
        body.append(compared.details())
        body += [workers_page.section(shown, name)] if name == workers_page.SUITE else []
        if not planted:
            because = loader_page.section(shown, name, path)
            body.append(because.html)
            files |= because.files
    body += claims_page.suite_section(told, name, path) if told else []
    return Page(path, name.capitalize(), "\n".join(body), figures, files)


def _chart(chart: str, shown: RunView, name: str, path: str) -> tuple[str, Placed]:
    """Draw a chart of a run: its title, and the figure."""
    figure = draw(chart, shown, name)
    figure_id = f"{markup.slug(name)}-{chart}-{shown.mark}"
    return figure.title, place(figure, figure_id, path, shown.origin)


def _fits(figures: Mapping[str, Placed], runs: int) -> bool:
    """Whether a page stays light with the charts of one run more, as heavy as those of the runs before it."""
    if not runs:
        return True
    weight = len(zlib.compress("".join(placed.html for placed in figures.values()).encode()))
    return weight * (runs + 1) / runs <= _ROOM


def _elsewhere(path: str) -> str:
    explore = markup.link(path, EXPLORE, "Explore")
    return f'<p class="fr-note">Its charts would make this page slow to load. {explore} draws them.</p>\n'


def _places(measured: Sequence[RunView]) -> str:
    """Lead to each machine and device below, where there are several."""
    links = [f'<a href="#{shown.mark}">{escape(shown.name)}</a>' for shown in measured]
    return f'<p class="fr-origin">Measured on {words.listed(links)}.</p>\n' if len(links) > 1 else ""


def _origin(shown: RunView, path: str) -> str:
    run = shown.manifest
    said = [
        descriptions.day(run.started_at),
        words.plural(run.blocks, "block"),
        f"{sum(run.outcomes.values()):,} trials",
    ]
    said += [f"{shown.failed:,} failed"] if shown.failed else []
    notes = "".join(f"<br>{escape(descriptions.note(note))}" for note in run.substitutions)
    machine = markup.link(path, shown.machine_page, "the machine and its other tasks")
    return (
        f'<p class="fr-origin">{markup.entities(", ".join(said))}, '
        f"{markup.link(path, shown.page, f'run {run.run_id}')}, {trust.badge(path, shown)}, {machine}{notes}</p>\n"
    )
