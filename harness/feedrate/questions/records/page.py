"""The page "Data": every run, how to cite it and every figure, and what changed in feedrate."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import markdown
from markupsafe import Markup

from feedrate.charts.citation import BIBLIOGRAPHY, HASH_DIGITS, Citation, bibliography, software
from feedrate.charts.embed import forms_html
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import FOLDER, Page, Placed
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.accuracy import page as accuracy_page
from feedrate.questions.methodology import page as methodology_page
from feedrate.questions.runs.facts import run_forms, runs_table
from feedrate.schema.plugins import RESOURCES
from feedrate.share.findings import Validated
from feedrate.store.bench_record import BenchRecord

PATH, TITLE = "data.md", "Data"
CHANGES = RESOURCES / "CHANGELOG.md"
_DEMOTED = {f"h{level}": f"h{level + 1}" for level in (4, 3, 2)}
"""The changelog's headings stand a level lower here."""


def page(
    runs: Sequence[RunView],
    withdrawn: Sequence[RunView],
    refused: Sequence[Validated],
    benches: Sequence[BenchRecord],
    placed: Sequence[Placed],
    address: str = "",
) -> Page:
    """Write the page.

    Args:
        runs: those that are shown, newest first.
        withdrawn: those that are not, as their makers say why.
        refused: those that break a rule.
        benches: records of ``make bench``.
        placed: figures of all other pages.
        address: where the site will be published; may be empty.
    """
    citations = [figure.citation for figure in placed if figure.citation]
    path = f"{FOLDER}/{BIBLIOGRAPHY}"
    body = render(
        "records/page.md",
        page=PATH,
        title=TITLE,
        listing=runs_table(runs, PATH) if runs else "",
        left_out=methodology_page.left_out(refused),
        withdrawn=[_withdrawn(view) for view in withdrawn],
        benches=[_bench(bench) for bench in sorted(benches, key=attrgetter("started_at"), reverse=True)],
        bibliography=path,
        changes=_changes(CHANGES),
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


def _withdrawn(view: RunView) -> tuple[object, ...]:
    mark = view.beside.withdrawn
    on, why = (descriptions.day(mark.on), mark.why) if mark else ("", "")
    return markup.link(PATH, view.page, view.manifest.run_id), view.name, on, why


def _bench(bench: BenchRecord) -> tuple[object, ...]:
    """A record of ``make bench``."""
    return (
        Markup('<span class="fr-whole">{}</span>').format(markup.link(PATH, accuracy_page.PATH, bench.name)),
        descriptions.name_of(bench.machine),
        ", ".join(bench.sections),
        f"{len(bench.witnessed):,}" if bench.witnessed else "–",
        bench.feedrate_version,
    )


def _changes(path: Path) -> Markup:
    """Turn the changelog into HTML without its title."""
    html = markdown.markdown(path.read_text(encoding="utf-8").partition("\n")[2])
    for tag, lower in _DEMOTED.items():
        html = html.replace(f"<{tag}>", f"<{lower}>").replace(f"</{tag}>", f"</{lower}>")
    return Markup(html)  # noqa: S704 - the project's own text
