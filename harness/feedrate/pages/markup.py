"""Pages as Markdown and HTML in which nothing that comes from a record can be more than text.

A figure where a page shows it, with the files that can be downloaded and its citation.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

from markupsafe import Markup

from feedrate.charts.citation import Citation

FOLDER = "figures"
"""Below the pages folder: pictures and specifications of figures; ``figures.py`` adds PNG and PDF."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A figure that is ready for a page."""

    name: str
    """Its id, unique on the site."""
    html: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Path below the pages folder to content: table, picture, specification. None for a figure without panels."""
    citation: Citation | None = None
    """None for a figure without panels."""
    charts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of a panel in the page to the Vega-Lite specification that it is drawn anew from."""
    raster: bool = True
    """Whether the page offers PNG and PDF, too: they take a fifth of a second each."""

    @property
    def picture(self) -> str:
        """The whole figure as SVG; empty where there is none."""
        return self.files.get(f"{FOLDER}/{self.name}.svg", "")


_SECTION = re.compile(r"^## (.+?) \{ #([\w-]+) \}$", re.MULTILINE)
_PLAIN = re.compile(r"[^A-Za-z0-9 ,.;:?%±–’\u00c0-\u024f]")


@dataclass(frozen=True, slots=True)
class Page:
    """One page before mkdocs has seen it."""

    path: str
    """Below the pages folder, ending in ``.md``."""
    title: str
    body: str
    """Markdown with blocks of HTML."""
    figures: Mapping[str, Placed] = field(default_factory=dict)
    """By name; put in place of :func:`slot` after mkdocs, which has no business in them."""
    files: Mapping[str, str | Path] = field(default_factory=dict)
    """Files beside the pages, those of figures aside: path to content, or to the file that is copied."""
    listed: bool = True
    """Whether navigation and search know the page."""
    hide: Sequence[str] = ()
    """``navigation`` and ``toc``, where a page has no use for them."""
    boost: float = 1
    """How far up the search lists it: a page that answers a question stands before those that explain."""

    @property
    def charts(self) -> str:
        """Path of the file that its charts are drawn anew from; empty where it has none."""
        return self.path.removesuffix(".md") + ".charts.js" if any(f.charts for f in self.figures.values()) else ""

    def all_files(self) -> dict[str, str | Path]:
        """List the page's files and those of its figures."""
        placed = self.figures.values()
        files = {**self.files, **{path: text for figure in placed for path, text in figure.files.items()}}
        if self.charts:
            specs = {name: spec for figure in placed for name, spec in figure.charts.items()}
            # A script and no JSON, as a page that was opened from a disk may not read other files.
            files[self.charts] = f"window.feedrateCharts={json.dumps(specs, separators=(',', ':'), sort_keys=True)};\n"
        return files

    def markdown(self) -> str:
        """Write the page with its front matter."""
        lines = ["---", f'title: "{entities(self.title)}"']
        lines += ["hide:", *(f"  - {side}" for side in self.hide)] if self.hide else []
        lines += ["search:", f"  boost: {self.boost}" if self.listed else "  exclude: true"]
        return "\n".join([*lines, "---", "", self.body, ""])


def entities(text: object) -> str:
    """Write text so that neither Markdown nor HTML finds any markup in it, on one line."""
    flat = " ".join(str(text).split())
    return _PLAIN.sub(lambda match: f"&#{ord(match[0])};", flat)


def slug(text: str) -> str:
    """Turn text into a name that is safe in paths, ids and links; names that had to be changed get a hash."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:80]
    return safe if safe == text and text else f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}".lstrip("-")


def link(page: str, target: str, text: str, style: str = "") -> Markup:
    """Write a link from one page to a file below the pages folder, as the built site has it (``.html`` for ``.md``)."""
    up = "../" * (len(PurePosixPath(page).parts) - 1)
    href = up + re.sub(r"[.]md(?=#|$)", ".html", target)
    return Markup('<a {}href="{}">{}</a>').format(Markup('class="{}" ').format(style) if style else "", href, text)


def download(page: str, target: str, text: str) -> Markup:
    """Write a link that saves a file; arguments as for ``link``."""
    return link(page, target, text).replace("<a ", Markup("<a download "), 1)


def code(text: object) -> Markup:
    """Set text as code."""
    return Markup("<code>{}</code>").format(text)


def two_lines(first: object, *small: object, style: str = "fr-kind") -> Markup:
    """Write lines in small print below a first one, as cells of tables have it; empty ones are left out."""
    below = (Markup('<br><span class="{}">{}</span>').format(style, line) for line in small if line)
    return Markup("{}").format(first) + Markup("").join(below)


def heading(level: int, text: str, name: str = "") -> str:
    """Write a Markdown heading that the table of contents finds, with an id that stays."""
    anchor = f" {{ #{name} }}" if name else ""
    return f"{'#' * level} {entities(text)}{anchor}\n"


def anchor(title: str) -> str:
    """Give a heading's title as the id that links to it end in."""
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalpha() or letter == "-")


def paragraph(text: str, style: str = "") -> str:
    """Write a paragraph of plain text as HTML."""
    start = f'<p class="{style}">' if style else "<p>"
    return f"{start}{escape(text)}</p>\n"


def addressed(path: str, text: str) -> str:
    """Write the path of a file with a hash of what it holds, so that no reader keeps an older one."""
    return f"{path}?v={hashlib.sha256(text.encode()).hexdigest()[:8]}"


def contents(text: str) -> Markup:
    """List the sections of a Markdown text, for screens that have no room for the theme's own list."""
    item = Markup('<li><a href="#{}">{}</a></li>')
    items = Markup("").join(item.format(name, title) for title, name in _SECTION.findall(text))
    return Markup('<nav class="fr-contents" aria-label="Contents of this page"><ul>{}</ul></nav>\n').format(items)


def slot(name: str) -> str:
    """Mark the place of a figure."""
    return f'<div class="fr-slot" id="slot-{name}"></div>'


_WAITING = "Starting … If you opened this page as a file, run make serve: the page needs a server to read data."


def scripted(name: str, index: str, styles: Iterable[str] = ()) -> str:
    """Write the place that a script of the site's own fills; nothing is promised where none runs.

    Args:
        name: of the page's bundle, of its style sheet below ``assets/``, and of the place.
        index: path of what the script reads first.
        styles: names of the style sheets that it needs before its own.
    """
    sheets = "".join(f'<link rel="stylesheet" href="assets/{sheet}.css">' for sheet in (*styles, name))
    return (
        f'{sheets}<div class="fr-{name}" id="fr-{name}" data-index="{escape(index)}" data-search-exclude>'
        f'<p class="fr-{name}-wait">{escape(_WAITING)}</p></div>'
        f'<script type="module" src="assets/scripts/{name}/page.js"></script>'
    )
