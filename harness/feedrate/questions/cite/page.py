"""The page "Cite": how to cite feedrate, a figure and a run, what a hash means, and all figures with id and hash."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from feedrate.charts import citation as citing
from feedrate.charts.citation import BIBLIOGRAPHY, HASH_DIGITS, Citation, bibliography
from feedrate.charts.embed import forms_html
from feedrate.pages import markup
from feedrate.pages.markup import FOLDER, Page, Placed
from feedrate.pages.runs import RunView
from feedrate.pages.template import render

PATH = "cite.md"
TITLE = "How to cite"


def page(placed: Sequence[Placed], runs: Sequence[RunView], address: str = "") -> Page:
    """Write the page from the figures of all others and from all runs, newest first; the site may have an address."""
    citations = [figure.citation for figure in placed if figure.citation]
    path = f"{FOLDER}/{BIBLIOGRAPHY}"
    body = render(
        "cite/page.md",
        page=PATH,
        title=TITLE,
        software=forms_html(citing.software(), "feedrate"),
        newest=run_forms(runs[0]) if runs else "",
        digits=HASH_DIGITS,
        bibliography=path,
        first=citations[0] if citations else None,
        figures=[
            (
                Markup("{}<br>{}").format(markup.link(PATH, each.link, each.title), markup.code(each.name)),
                Markup("{}<br>{}").format(
                    "; ".join(each.origin.machines), Markup(", ").join(map(markup.code, each.origin.runs))
                ),
                markup.code(each.data_hash),
            )
            for each in citations
        ],
    )
    return Page(PATH, TITLE, body, files={path: bibliography(citations, address)} if citations else {})


def run_forms(view: RunView) -> Markup:
    """Write the citation of a run in every form: by its file of trials, which embeds its manifest."""
    content = (view.run.folder / "trials.parquet").read_bytes()
    address = f"{view.page.removesuffix('.md')}.html"
    title = f"feedrate run {view.manifest.run_id}"
    cited = Citation(view.slug, title, view.origin, citing.data_hash(content), address, "run")
    return forms_html(cited.forms(), cited.title, cited.link)
