"""The page of a run that was withdrawn, which stays where it was, and the list of all such runs.

Links to a run and citations of it go on leading somewhere: to the reason. Its files stay for whoever has to check what
was said from them; no chart, table or verdict of this site draws on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.questions.runs import facts
from feedrate.questions.runs.page import FILES, downloads


def page(shown: RunView) -> Page:
    """Write the page of a run that was withdrawn; it copies the run's files beside it.

    Args:
        shown: the run, whose ``beside.withdrawn`` says why.
    """
    run = shown.manifest
    there = {name: shown.run.folder / name for name in FILES if (shown.run.folder / name).is_file()}
    files = {f"runs/{shown.slug}/{name}": path for name, path in there.items()}
    machine = [("Machine", escape(shown.name)), ("Machine id", markup.code(shown.machine_id))]
    body = [
        f'<p class="fr-eyebrow">Run, withdrawn</p>\n\n# {markup.entities(run.run_id)}\n',
        _notice(shown),
        markup.facts([*machine, *facts.short(shown), *facts.beside(shown)]),
        markup.heading(2, "Files", "files"),
        markup.paragraph("As they were when the run was withdrawn. Do not compare with them, and do not cite them."),
        downloads(shown, files),
    ]
    title = f"Run {run.run_id}, withdrawn"
    return Page(shown.page, title, "\n".join(body), files=files, listed=False, hide=("navigation",))


def _notice(shown: RunView) -> str:
    said = shown.beside.withdrawn
    if said is None:
        raise ValueError(f"run {shown.manifest.run_id} was not withdrawn")
    return (
        f'<p class="fr-lead"><strong>This run was withdrawn on {escape(descriptions.day(said.on))}.</strong> No '
        f"chart, estimate or verdict uses it. The reason that was given: {escape(said.why)}</p>\n"
    )


def listed(page_path: str, runs: Sequence[RunView]) -> str:
    """List the runs that were withdrawn; nothing without any.

    Args:
        page_path: path of the page that holds the list.
        runs: newest first.
    """
    rows = [
        (
            markup.link(page_path, shown.page, shown.manifest.run_id),
            escape(shown.name),
            escape(descriptions.day(said.on)),
            escape(said.why),
        )
        for shown in runs
        if (said := shown.beside.withdrawn)
    ]
    columns = ("Run", "Machine", "Withdrawn", "Why")
    table = markup.table("Runs that were withdrawn", columns, rows, stack=True) if rows else ""
    return f'<h2 id="withdrawn">Withdrawn</h2>\n{table}' if rows else ""
