"""The home page: what this is, the figure that tells the story, the numbers that matter, what to type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.charts import _words as words
from harness.charts._figure import Figure
from harness.pages import described, markup, trust
from harness.pages.gathered import Shown, draw, newest, place
from harness.pages.headlines import answer, headline_table
from harness.pages.markup import Page
from harness.suite import MAIN, Suite

PATH = "index.md"
_TITLE = "How fast can a machine feed its accelerator?"
_LEAD = (
    "feedrate sweeps the settings that people argue about (batch size, workers, pinned memory, prefetching, "
    "storage format) over real training loops. It says which stage starves the accelerator, and by how much, and "
    "gives every number its spread, its machine and the command that repeats it."
)
_COMMANDS = (
    ("make sweep", "measure this machine, in about five minutes after set-up"),
    ("make site", "build these pages from your results into build/site"),
    ("make serve", "look at them"),
    ("make sweep DATA=photos/", "measure with your own photographs"),
)
_OPENING_PANELS = 2


def leading(runs: Sequence[Shown]) -> list[Shown]:
    """Keep the runs that speak for their machine: of the main suite, or where a machine has none, of any other."""
    asking = [shown for shown in runs if shown.asks]
    main = {shown.machine_id for shown in asking if MAIN in shown.suites}
    return [shown for shown in asking if MAIN in shown.suites or shown.machine_id not in main]


def opening(runs: Sequence[Shown]) -> tuple[Shown, Figure] | None:
    """Pick the figure that opens the site and the README: phases, from the newest run that has them."""
    for shown in leading(runs):
        figure = draw("phases", shown)
        if figure.panels:
            panels = figure.panels[:_OPENING_PANELS]
            return shown, replace(figure, panels=panels)
    return None


def page(runs: Sequence[Shown], suites: Sequence[tuple[str, str, Suite]]) -> Page:
    """Write the home page.

    Args:
        runs: all runs, newest first; none is fine.
        suites: name, page and content of each suite that has results.
    """
    runs = leading(runs)
    body = [f"# {_TITLE}\n", markup.paragraph(_LEAD, "fr-lead")]
    figures, files = {}, {}
    if found := opening(runs):
        shown, figure = found
        placed = place(figure, "opening", PATH)
        figures[placed.name], files[placed.csv_path] = placed.html, placed.csv
        body += [
            markup.heading(2, figure.title, "opening-figure"),
            _origin(shown, described.machine_name(shown.run)),
            markup.slot(placed.name),
            "\n",
        ]
    body += _numbers(runs) if runs else [_nothing()]
    body += [markup.heading(2, "What to type", "what-to-type"), markup.commands(_COMMANDS)]
    if suites:
        body += [markup.heading(2, "The questions", "questions"), _doors(suites)]
    return Page(PATH, "feedrate", "\n".join(body), figures, files, hide=("navigation", "toc"))


def _origin(shown: Shown, *before: str) -> str:
    run = markup.link(PATH, shown.page, f"run {shown.manifest.run_id}")
    said = ", ".join([*before, described.day(shown.manifest.started_at), words.plural(shown.manifest.blocks, "block")])
    return f'<p class="fr-origin">{markup.entities(said)}, {run}, {trust.badge(PATH, shown)}</p>\n'


def _numbers(runs: Sequence[Shown]) -> list[str]:
    body = [markup.heading(2, "The numbers", "numbers")]
    for shown in newest(runs):
        table = headline_table(shown.headlines)
        name = described.machine_name(shown.run)
        body += [markup.heading(3, name, f"numbers-{markup.slug(shown.machine_id)}"), _origin(shown)]
        body += (
            [
                markup.paragraph(answer(shown.headlines)),
                table,
                markup.paragraph(
                    "n counts blocks. The best of many settings is picked by its own estimate, so that estimate is a "
                    "little too good; the comparison with the defaults is paired block by block.",
                    "fr-note",
                ),
            ]
            if table
            else [markup.paragraph("No trial of this run ended well; its page lists why.")]
        )
    return body


def _nothing() -> str:
    return (
        '<div class="fr-nothing"><p><strong>There are no results here yet.</strong> The first sweep takes about '
        "five minutes and leaves a folder under <code>results/</code>; build the site again and its numbers are "
        "here.</p></div>\n"
    )


def _doors(suites: Sequence[tuple[str, str, Suite]]) -> str:
    items = "".join(f"<li>{markup.link(PATH, path, suite.question)}</li>" for _, path, suite in suites)
    return f'<ul class="fr-doors">{items}</ul>\n'
