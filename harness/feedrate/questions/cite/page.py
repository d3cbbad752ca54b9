"""The page "Cite": how to cite feedrate, a figure and a run, what a hash means, and all figures with id and hash."""

from __future__ import annotations

from collections.abc import Sequence

from feedrate.charts import citation as citing
from feedrate.charts.citation import BIBLIOGRAPHY, HASH_DIGITS, Citation, bibliography, forms
from feedrate.pages import markup
from feedrate.pages.markup import FOLDER, Page, Placed
from feedrate.pages.runs import RunView

PATH = "cite.md"
TITLE = "How to cite"
_LEAD = (
    "What is cited should be found, checked and repeated by others. So every figure of these pages has an id, a link, "
    "a hash of its data and its citation beneath it, and every run keeps its raw files."
)
_FIGURE = (
    "Under every figure, “Cite or download” holds its citation as plain text, Markdown and BibTeX, and its files. The "
    "date is the day of the measurement; the day on which a page was built is never cited. The address is the one "
    "under which you see this site; without scripts, the part of it that follows the site’s own."
)
_FACTS = (
    ("Id and link", "They stay when a newer run takes the figure’s place; the figure then shows the newer run."),
    (
        "Run",
        "Says which run was shown when the figure was cited. It keeps its own page, with all its records to download.",
    ),
    (
        "Data hash",
        "Says whether the numbers are still those that were cited. It is part of the BibTeX key as well, so that two "
        "states of a figure can be cited side by side.",
    ),
    ("Machine", "Processor, cores and accelerator. A number of one machine says nothing of another."),
)
_SAME = (
    (
        "CSV, Vega-Lite",
        "the same bytes",
        "Made from the records alone; nothing in them is random or of today.",
    ),
    (
        "SVG, PNG",
        "the same bytes",
        "With the versions of requirements.lock and the same fonts to set text in.",
    ),
    ("PDF", "the same picture", "Its bytes may differ: compare what it shows."),
)
_COMMANDS = (
    ("make figures", "write every figure as SVG, PNG, PDF, CSV and Vega-Lite, and figures.bib, into build/figures"),
    ("make figures OUT=paper/figures", "write them elsewhere"),
)


def page(placed: Sequence[Placed], runs: Sequence[RunView], address: str = "") -> Page:
    """Write the page.

    Args:
        placed: the figures of all other pages that can be cited.
        runs: all runs, newest first.
        address: of the site where it is known, ending in a slash.
    """
    citations = [figure.citation for figure in placed if figure.citation]
    body = [
        f"# {TITLE}\n",
        markup.paragraph(_LEAD, "fr-lead"),
        markup.heading(2, "feedrate", "feedrate"),
        forms(citing.software(), "feedrate") + "\n",
        markup.heading(2, "A figure", "figure"),
        markup.paragraph(_FIGURE),
        markup.facts((name, markup.entities(said)) for name, said in _FACTS),
        markup.heading(2, "A run", "run"),
        *_run(runs),
        markup.heading(2, "What a hash says, and how to check it", "hash"),
        *_hash(citations),
        markup.heading(2, "What comes out the same again", "same"),
        *_same(),
        markup.heading(2, "For LaTeX", "latex"),
        *_latex(citations),
        markup.heading(2, "Every figure", "figures"),
        *_listing(citations),
    ]
    files = {f"{FOLDER}/{BIBLIOGRAPHY}": bibliography(citations, address)} if citations else {}
    return Page(PATH, TITLE, "\n".join(body), files=files)


def of_run(shown: RunView) -> Citation:
    """Cite a run by its file of trials, which embeds its manifest.

    Raises:
        OSError: the file cannot be read.
    """
    content = (shown.run.folder / "trials.parquet").read_bytes()
    address = f"{shown.page.removesuffix('.md')}.html"
    title = f"feedrate run {shown.manifest.run_id}"
    return Citation(shown.slug, title, shown.origin, citing.data_hash(content), address, "run")


def run_forms(shown: RunView) -> str:
    """Write the citation of a run in every form, as HTML."""
    cited = of_run(shown)
    return f"{forms(cited.forms(), cited.title, cited.link)}\n"


def _run(runs: Sequence[RunView]) -> list[str]:
    said = markup.paragraph(
        "Cite a run where no figure shows what you mean. Its hash is that of trials.parquet, which has a row a trial "
        "and the run’s manifest inside: one file that is a whole result."
    )
    if not runs:
        return [said]
    return [said, markup.paragraph("The newest one, for example:"), run_forms(runs[0])]


def _hash(citations: Sequence[Citation]) -> list[str]:
    name, printed = (citations[0].name, citations[0].data_hash) if citations else ("NAME", "its hash")
    commands = (
        (f"sha256sum {name}.csv | cut -c1-{HASH_DIGITS}", markup.code(printed)),
        (f"sha256sum trials.parquet | cut -c1-{HASH_DIGITS}", "the hash of the run whose file it is"),
    )
    rows = [(markup.code(command), prints) for command, prints in commands]
    return [
        markup.paragraph(
            f"A data hash is the beginning of the SHA-256 of the file that the figure shows, its CSV: {HASH_DIGITS} "
            "hexadecimal digits. Numbers stand in it in full precision, so a hash that is the same means the same "
            "numbers. After a download:"
        ),
        markup.table("How to check a hash", ("Typed beside the file", "It prints"), rows, stack=True),
    ]


def _same() -> list[str]:
    rows = [tuple(map(markup.entities, row)) for row in _SAME]
    return [
        markup.paragraph("The site can be built again from the same results. Then:"),
        markup.table("What a second build gives", ("What", "Again", "Why"), rows, stack=True),
    ]


def _latex(citations: Sequence[Citation]) -> list[str]:
    listed = markup.download(PATH, f"{FOLDER}/{BIBLIOGRAPHY}", "The citations of all figures as BibTeX")
    download = f"<p>{listed}</p>\n" if citations else ""
    return [download, markup.commands(_COMMANDS)]


def _listing(citations: Sequence[Citation]) -> list[str]:
    if not citations:
        return [
            markup.paragraph("There are none yet: figures come with the first run. Type make sweep, then make site.")
        ]
    rows = [
        (
            f"{markup.link(PATH, each.link, each.title)}<br>{markup.code(each.name)}",
            f"{markup.entities('; '.join(each.origin.machines))}<br>{', '.join(map(markup.code, each.origin.runs))}",
            markup.code(each.data_hash),
        )
        for each in citations
    ]
    columns = ("Figure and id", "Machine and run", "Data hash")
    return [markup.table("Every figure with its id and data hash", columns, rows, stack=True)]
