"""What stands under a figure: its link and data hash, its citation in every form, and its files to download.

The page needs no script: citations are text to select, with the address below the site's own, which pages do not know.
With ``site/assets/cite.js`` the address is whole, and a button copies each form.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from harness.citation import Citation

FILES = {"SVG": "svg", "PNG (2×)": "png", "PDF": "pdf", "CSV": "csv", "Vega-Lite": "vl.json"}
"""What a figure can be downloaded as, to how the file's name ends."""


def foot(citation: Citation, links: Mapping[str, str]) -> str:
    """Write the panel under a figure, and its permalink.

    Args:
        citation: of the figure.
        links: kind of file, as in ``FILES``, to where it is, relative to the page.
    """
    title = escape(citation.title)
    files = "".join(f'<li><a href="{escape(href)}" download>{escape(kind)}</a></li>' for kind, href in links.items())
    return (
        f'<details class="fr-cite"><summary>Cite or download</summary>'
        f'<ul class="fr-files" aria-label="Download: {title}">{files}</ul>'
        f"{forms(citation.forms(), citation.title, citation.link)}</details>"
        f'<p class="fr-foot"><a href="#{citation.name}" aria-label="Link to this figure: {title}">'
        f"Link to this figure</a> <span>data sha256 <code>{citation.data_hash}</code></span></p>"
    )


def forms(written: Mapping[str, str], what: str, link: str = "") -> str:
    """Write a citation in every form, each in one piece that can be selected.

    Args:
        written: form to text.
        what: is cited, for the names of the buttons that a script adds.
        link: the address in the texts that a script makes whole; none where there is none.
    """
    address = escape(link)
    items = "".join(
        f'<div data-form="{escape(form)}"><dt>{escape(form)}</dt>'
        f"<dd><pre>{_marked(escape(text), address)}</pre></dd></div>"
        for form, text in written.items()
    )
    return f'<dl class="fr-forms" data-what="{escape(what)}">{items}</dl><p class="fr-said" role="status"></p>'


def _marked(text: str, address: str) -> str:
    return text.replace(address, f'<span class="fr-address">{address}</span>') if address else text
