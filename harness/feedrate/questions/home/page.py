"""The home page: what this is, three doors, the figure that tells the story, the numbers that matter, what to type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from feedrate.charts.figure import Figure
from feedrate.pages import descriptions
from feedrate.pages.headlines import RULE, headline_table
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView, draw, newest, place
from feedrate.pages.tasks import answer
from feedrate.pages.template import render
from feedrate.pages.verdicts import Verdicts
from feedrate.plan.suite import MAIN, Suite
from feedrate.questions.home.findings import findings
from feedrate.questions.runs import facts as runs_facts
from feedrate.schema import words
from feedrate.store.bench_record import BenchRecord

PATH = "index.md"
TITLE = "How fast can a machine feed its accelerator?"
EXPLORE = "explore.md"
"""As ``questions.explore`` has it, which draws on this page."""
FEATURED = 3
"""Machines whose numbers stand on the front: those that were measured last."""
_OPENING = "defaults"
_OPENING_PANELS = 2


def leading(runs: Sequence[RunView]) -> list[RunView]:
    """Keep the runs that speak for their machine and device: of the main suite, or where it has none, of any other."""
    asking = [view for view in runs if view.for_machines]
    main = {view.where for view in asking if MAIN in view.suites}
    return [view for view in asking if MAIN in view.suites or view.where not in main]


def opening(runs: Sequence[RunView]) -> tuple[RunView, Figure] | None:
    """Pick the figure that opens the site and the README: defaults against best, from the newest run that has it."""
    for view in leading(runs):
        figure = draw(_OPENING, view)
        if figure.panels:
            return view, replace(figure, panels=figure.panels[:_OPENING_PANELS])
    return None


def page(
    runs: Sequence[RunView],
    suites: Sequence[tuple[str, str, Suite]],
    verdicts: Verdicts,
    known: int | None = None,
    benches: Sequence[BenchRecord] = (),
) -> Page:
    """Write the home page; ``known`` is how many machines there are, where that is more than have a run here."""
    speaking = leading(runs)
    headline = opening(speaking)
    placed = place(headline[1], "opening", PATH, headline[0].origin) if headline else None
    machines = list(dict.fromkeys(view.machine_id for view in newest(speaking)))[:FEATURED]
    told = findings(speaking, verdicts, benches)
    numbers = [view for view in newest(speaking) if view.machine_id in machines]
    body = render(
        "home/page.md",
        page=PATH,
        explore=EXPLORE,
        rule=RULE,
        title=TITLE,
        known=len({view.machine_id for view in runs}) if known is None else known,
        tested=_tested(verdicts),
        opening=headline and _numbers(headline[0]),
        figure=headline and headline[1],
        placed=placed,
        findings=told,
        numbers=[_numbers(view) for view in numbers],
        machines=machines,
        suites=suites,
        main=[(path, content.question) for name, path, content in suites if name == MAIN][:1],
    )
    return Page(PATH, TITLE, body, {placed.name: placed} if placed else {}, hide=("navigation", "toc"))


def _numbers(view: RunView) -> dict[str, Any]:
    """What the page says of a run."""
    run = view.manifest
    return {
        "view": view,
        "origin": ", ".join((descriptions.day(run.started_at), words.plural(run.blocks, "block"))),
        "badge": runs_facts.badge(PATH, view),
        "table": headline_table(view.headlines),
        "answer": answer(view.headlines),
    }


def _tested(verdicts: Verdicts) -> str:
    """How many claims there are, how many were tested, and on one machine what became of them."""
    claims = f"{len(verdicts.results)} statements on what makes training faster"
    machines = len({place.view.machine_id for place in verdicts.places})
    if not machines:
        return f"{claims}; no run has tested them yet."
    tested = f"{claims}; {verdicts.frame()['claim'].nunique()} tested so far"
    if machines > 1:
        return f"{tested}, on {machines} machines."
    decided = ", ".join(filter(None, (_decided(verdicts, at) for at in range(len(verdicts.places)))))
    return f"{tested}, on one machine{': ' if decided else ''}{decided}."


def _decided(verdicts: Verdicts, at: int) -> str:
    """How many claims hold at a place and how many do not; with its device where the machine has another too."""
    counts = {verdict: count for verdict, count in verdicts.tally(at).items() if verdict in ("confirmed", "refuted")}
    text = words.listed(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{text} on {verdicts.places[at].device.upper()}" if text and verdicts.places[at].several else text
