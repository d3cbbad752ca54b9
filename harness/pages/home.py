"""The home page: what this is, three doors, the figure that tells the story, the numbers that matter, what to type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from harness.bench_record import BenchRecord
from harness.charts import _words as words
from harness.charts._figure import Figure
from harness.pages import claims, contribute, described, machines, markup, trust, what_we_found
from harness.pages.gathered import Shown, draw, newest, place
from harness.pages.headlines import answer, headline_table
from harness.pages.markup import Page
from harness.pages.placed import Placed
from harness.pages.verdicts import Verdicts
from harness.suite import MAIN, Suite

PATH = "index.md"
FEATURED = 3
"""Machines whose numbers stand on the front: those that were measured last."""
_TITLE = "How fast can a machine feed its accelerator?"
_LEAD = (
    "feedrate sweeps the settings that people argue about (batch size, workers, pinned memory, prefetching, storage "
    "format) over real PyTorch training loops, and says which stage starves the accelerator, and by how much. Every "
    "number has its spread, its machine and the command that repeats it."
)
_COMMANDS = (
    ("make sweep", "measure this machine: about five minutes after set-up; it ends with the best settings"),
    ("make serve", "build these pages from your own results, and show them"),
)
_MORE = (
    ("make sweep DATA=photos/", "measure with your own photographs"),
    ("make sweep SUITE=storage DATA=photos/", "which storage format they should live in"),
    ("make sweep SUITE=claims", "what of the usual advice holds on this machine"),
)
EXPLORE = "explore.md"
"""As ``pages.explore`` has it, which draws on this page."""
_OPENING = "defaults"
_OPENING_PANELS = 2


def leading(runs: Sequence[Shown]) -> list[Shown]:
    """Keep the runs that speak for their machine and device: of the main suite, or where it has none, of any other."""
    asking = [shown for shown in runs if shown.asks]
    main = {shown.where for shown in asking if MAIN in shown.suites}
    return [shown for shown in asking if MAIN in shown.suites or shown.where not in main]


def opening(runs: Sequence[Shown]) -> tuple[Shown, Figure] | None:
    """Pick the figure that opens the site and the README: defaults against best, from the newest run that has it."""
    for shown in leading(runs):
        figure = draw(_OPENING, shown)
        if figure.panels:
            return shown, replace(figure, panels=figure.panels[:_OPENING_PANELS])
    return None


def page(
    runs: Sequence[Shown],
    suites: Sequence[tuple[str, str, Suite]],
    told: Verdicts,
    known: int | None = None,
    benches: Sequence[BenchRecord] = (),
) -> Page:
    """Write the home page.

    Args:
        runs: all runs, newest first; none is fine.
        suites: name, page and content of each suite that has results.
        told: what the runs say of the claims.
        known: how many machines there are, where that is more than have a run here.
        benches: what ``make bench`` found.
    """
    known = len({shown.machine_id for shown in runs}) if known is None else known
    body = [f"# {_TITLE}\n", markup.paragraph(_LEAD, "fr-lead")]
    speaking = leading(runs)
    figures: dict[str, Placed] = {}
    if found := opening(speaking):
        shown, figure = found
        placed = place(figure, "opening", PATH, shown.origin)
        figures[placed.name] = placed
        picture = (
            f'<h2 id="opening-figure">{escape(figure.title)}</h2>\n'
            f"{_origin(shown, shown.name)}{markup.slot(placed.name)}\n{_explore()}"
        )
        body.append(f'<div class="fr-hero">{_doors(told, known)}<div>{picture}</div></div>\n')
    else:
        body.append(_doors(told, known))
    body += _found(what_we_found.sentences(speaking, told, benches))
    body += _numbers(speaking, known) if speaking else [_nothing(known)]
    body += _tune(suites)
    if suites:
        body += [markup.heading(2, "The questions", "questions"), _questions(suites)]
    return Page(PATH, _TITLE, "\n".join(body), figures, hide=("navigation", "toc"))


def _found(sentences: Sequence[what_we_found.Sentence]) -> list[str]:
    """The findings, each with a way to what it was made from."""
    items = "".join(f"<li>{escape(each.text)} {markup.link(PATH, each.page, each.source)}</li>" for each in sentences)
    return markup.section("What was found", f'<ul class="fr-found">{items}</ul>\n' if items else "", name="found")


def _explore() -> str:
    return (
        f'<p class="fr-note">{markup.link(PATH, EXPLORE, "Explore")} draws every number of every run by any axis.</p>\n'
    )


def _doors(told: Verdicts, known: int) -> str:
    doors = (
        ("#tune", "Tune my machine", "Two commands measure it and say which settings feed it best."),
        (machines.INDEX, "Compare hardware", _compared(known)),
        (claims.PATH, "Check a claim", _tested(told)),
    )
    items = "".join(
        f"<li>{markup.link(PATH, path, title)}<span>{escape(said)}</span></li>" for path, title, said in doors
    )
    return f'<ul class="fr-doors">{items}</ul>\n'


def _compared(count: int) -> str:
    if not count:
        return "No machine has been measured yet."
    if count == 1:
        return "One machine so far: what suits it, and what holds it back."
    return f"{count:,} machines: what suits each, and what holds it back."


def _tested(told: Verdicts) -> str:
    asked = f"{len(told.told)} statements on what makes training faster"
    machines_asked = len({place.shown.machine_id for place in told.places})
    if not machines_asked:
        return f"{asked}; no run has tested them yet."
    tested = f"{asked}; {told.frame()['claim'].nunique()} tested so far"
    if machines_asked > 1:
        return f"{tested}, on {machines_asked} machines."
    found = ", ".join(filter(None, (_decided(told, at) for at in range(len(told.places)))))
    return f"{tested}, on one machine{': ' if found else ''}{found}."


def _decided(told: Verdicts, at: int) -> str:
    """How many claims hold at a place and how many do not; with its device where the machine has another too."""
    counts = {verdict: count for verdict, count in told.tally(at).items() if verdict in ("confirmed", "refuted")}
    said = words.listed(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{said} on {told.places[at].device.upper()}" if said and told.places[at].several else said


def _origin(shown: Shown, *before: str) -> str:
    run = markup.link(PATH, shown.page, f"run {shown.manifest.run_id}")
    said = ", ".join([*before, described.day(shown.manifest.started_at), words.plural(shown.manifest.blocks, "block")])
    return f'<p class="fr-origin">{markup.entities(said)}, {run}, {trust.badge(PATH, shown)}</p>\n'


def _numbers(runs: Sequence[Shown], known: int) -> list[str]:
    body = [markup.heading(2, "The numbers", "numbers")]
    speaking = newest(runs)
    machine_ids = list(dict.fromkeys(shown.machine_id for shown in speaking))[:FEATURED]
    for shown in (each for each in speaking if each.machine_id in machine_ids):
        table = headline_table(shown.headlines)
        body += [markup.heading(3, shown.name, f"numbers-{shown.mark}"), _origin(shown)]
        body += [markup.paragraph(answer(shown.headlines)), table] if table else [markup.paragraph(_without(shown))]
        more = markup.link(PATH, shown.machine_page, "Everything about this machine")
        body.append(f'<p class="fr-note">{more}</p>\n')
    if known > len(machine_ids):
        rest = markup.link(PATH, machines.INDEX, f"All {known:,} machines")
        many = words.plural(len(machine_ids), "machine")
        body.append(f"<p>These are the numbers of the {many} measured last. {rest}</p>\n")
    body.append(
        markup.paragraph(
            "n counts blocks. The best of many settings is picked by its own estimate, so that estimate is a little "
            "too good; the comparison with the defaults is paired block by block.",
            "fr-note",
        )
    )
    return body


def _without(shown: Shown) -> str:
    """Why a run has no table: stages alone and cross-checks are no tasks."""
    if shown.manifest.outcomes.get("ok"):
        return "This run has no task whose best setting could be told; its page has what it measured."
    return "No trial of this run ended well; its page lists why."


def _nothing(known: int) -> str:
    said = (
        "<strong>No run here asks which settings suit a machine.</strong> Type <code>make sweep</code>"
        if known
        else "<strong>There are no results here yet.</strong> Type <code>make sweep</code>"
    )
    return (
        f'<div class="fr-nothing"><p>{said}: it takes about five minutes and leaves a folder under '
        "<code>results/</code>. Build the site again and its numbers are here.</p></div>\n"
    )


def _tune(suites: Sequence[tuple[str, str, Suite]]) -> list[str]:
    """What to type, and where the answer stands for machines that were measured."""
    how = markup.link(PATH, contribute.PATH, "How to run it, and how to add your machine here")
    asked = [markup.link(PATH, path, content.question) for name, path, content in suites if name == MAIN]
    answered = f"What came out on machines that were measured: {asked[0]} " if asked else ""
    return [
        markup.heading(2, "Tune my machine", "tune"),
        markup.commands(_COMMANDS),
        markup.paragraph("That is all on Linux with Python 3.11 or newer, make and git. Then, for instance:"),
        markup.commands(_MORE),
        f"<p>{answered}{how}.</p>\n",
    ]


def _questions(suites: Sequence[tuple[str, str, Suite]]) -> str:
    items = "".join(f"<li>{markup.link(PATH, path, suite.question)}</li>" for _, path, suite in suites)
    return f'<ul class="fr-questions">{items}</ul>\n'
