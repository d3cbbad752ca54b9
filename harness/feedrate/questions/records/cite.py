"""How to cite feedrate, a run and every figure, with the hash of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from feedrate.charts import citation as citing
from feedrate.charts.citation import HASH_DIGITS, Citation
from feedrate.charts.embed import forms_html
from feedrate.pages import markup
from feedrate.pages.runs import RunView


def values(page: str, citations: Sequence[Citation], runs: Sequence[RunView]) -> dict[str, Any]:
    """Gather what the page of a path says of citing; runs are newest first."""
    return {
        "software": forms_html(citing.software(), "feedrate"),
        "newest": run_forms(runs[0]) if runs else "",
        "digits": HASH_DIGITS,
        "first": citations[0] if citations else None,
        "figures": [_row(page, citation) for citation in citations],
    }


def _row(page: str, figure: Citation) -> tuple[Markup, Markup, Markup]:
    title = Markup("{}<br>{}").format(markup.link(page, figure.link, figure.title), markup.code(figure.name))
    runs = Markup(", ").join(map(markup.code, figure.origin.runs))
    return title, Markup("{}<br>{}").format("; ".join(figure.origin.machines), runs), markup.code(figure.data_hash)


def run_forms(view: RunView) -> Markup:
    """Write the citation of a run in every form: by its file of trials, which embeds its manifest."""
    content = (view.run.folder / "trials.parquet").read_bytes()
    address = f"{view.page.removesuffix('.md')}.html"
    title = f"feedrate run {view.manifest.run_id}"
    cited = Citation(view.slug, title, view.origin, citing.data_hash(content), address, "run")
    return forms_html(cited.forms(), cited.title, cited.link)
