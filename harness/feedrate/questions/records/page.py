"""The page "Data": every run, how to cite it and every figure, and what changed in feedrate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import markdown
from markupsafe import Markup

from feedrate.charts.citation import BIBLIOGRAPHY, HASH_DIGITS, Citation, bibliography, software
from feedrate.charts.embed import forms_html
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import FOLDER, Page, Placed
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.runs.facts import run_forms, runs_table
from feedrate.schema.plugins import RESOURCES
from feedrate.share.findings import Validated

PATH, TITLE = "data.md", "Data"


def page(
    runs: Sequence[RunView],
    withdrawn: Sequence[RunView],
    refused: Sequence[Validated],
    placed: Sequence[Placed],
    address: str = "",
) -> Page:
    """Write the page of runs that are shown, newest first, of those that are not, and of all other pages' figures.

    ``refused`` break a rule; ``address`` is where the site will be published, and may be empty.
    """
    citations = [figure.citation for figure in placed if figure.citation]
    path = f"{FOLDER}/{BIBLIOGRAPHY}"
    body = render(
        "records/page.md",
        page=PATH,
        title=TITLE,
        listing=runs_table(runs, PATH) if runs else "",
        left_out=[
            ("/".join(Path(refusal.path).parts[-2:]), reason.where, reason.got, reason.expected)
            for refusal in refused
            for reason in refusal.findings[:1]
        ],
        withdrawn=[
            (markup.link(PATH, view.page, view.manifest.run_id), view.name, descriptions.day(mark.on), mark.why)
            for view in withdrawn
            if (mark := view.beside.withdrawn)
        ],
        bibliography=path,
        changes=_changes(),
        software=forms_html(software(), "feedrate"),
        newest=run_forms(runs[0]) if runs else "",
        digits=HASH_DIGITS,
        first=citations[0] if citations else None,
        figures=[_figure(citation) for citation in citations],
    )
    files: dict[str, str | Path] = {path: bibliography(citations, address)} if citations else {}
    return Page(PATH, TITLE, body, files=files, hide=("navigation",))


def _figure(cited: Citation) -> tuple[Markup, Markup, Markup]:
    title = Markup("{}<br>{}").format(markup.link(PATH, cited.link, cited.title), markup.code(cited.name))
    runs = Markup(", ").join(map(markup.code, cited.origin.runs))
    return title, Markup("{}<br>{}").format("; ".join(cited.origin.machines), runs), markup.code(cited.data_hash)


def _changes() -> Markup:
    """Turn the changelog into HTML without its title, its headings a level lower."""
    html = markdown.markdown((RESOURCES / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n")[2])
    html = re.sub(r"(</?h)(\d)>", lambda tag: f"{tag[1]}{int(tag[2]) + 1}>", html)
    return Markup(html)  # noqa: S704 - the project's own text
