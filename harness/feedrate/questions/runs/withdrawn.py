"""The page of a run that was withdrawn, which stays where it was, and the list of all such runs.

Links to a run and citations of it go on leading somewhere: to the reason. Its files stay for whoever has to check what
was said from them; no chart, table or verdict of this site draws on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.pages.template import render, table
from feedrate.questions.runs import facts


def page(view: RunView) -> Page:
    """Write the page of a run that was withdrawn; it copies the run's files beside it.

    Args:
        view: the run, whose ``beside.withdrawn`` says why.
    """
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


def listed(page_path: str, runs: Sequence[RunView]) -> str:
    """List the runs that were withdrawn, on the page of a path; nothing without any."""
    rows = [
        (markup.link(page_path, view.page, view.manifest.run_id), view.name, descriptions.day(mark.on), mark.why)
        for view in runs
        if (mark := view.beside.withdrawn)
    ]
    columns = ("Run", "Machine", "Withdrawn", "Why")
    listing = table("Runs that were withdrawn", columns, rows, stack=True)
    return f'<h2 id="withdrawn">Withdrawn</h2>\n{listing}' if rows else ""
