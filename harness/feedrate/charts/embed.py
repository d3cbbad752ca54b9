"""A figure as HTML: static pictures first, live on demand, with legend, messages, table, citation and files.

The page needs no script: pictures are SVG, numbers are tables, citations are text to select. With scripts, a panel that
is pointed at or focused is drawn anew by Vega, from a specification that the page asks for only then, and a button
copies each citation. The templates escape everything; nothing is trusted.

Most elements of a page are cells of folded tables. A browser that runs scripts reads a ``<noscript>`` as text, which
costs it next to nothing, and ``site/scripts/site/folded.js`` makes that text part of the page when a reader unfolds it.
Without scripts it is part of the page from the beginning.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from feedrate.charts.citation import Citation
from feedrate.charts.figure import Figure, Key, Row
from feedrate.charts.render import SYMBOLS, WIDE, edge, specification, svg
from feedrate.schema import words

MOST_ROWS = 100
"""Of a table beside a figure; all of them are in its CSV file."""
FEWEST_IN_GROUP = 4
"""Rows that a group has on the average where what they share is said above them."""
FILES = {"SVG": "svg", "PNG (2×)": "png", "PDF": "pdf", "CSV": "csv", "Vega-Lite": "vl.json"}
"""What a figure can be downloaded as, to how the file's name ends."""
RASTER = ("png", "pdf")
"""Of these what is drawn from the SVG, which takes long."""
FOLDED = re.compile("<noscript>.*?</noscript>", re.DOTALL)
"""What is read later, in the HTML of a page."""
_PARTED = re.compile('</?noscript|class="fr-slot"')


def figure_html(figure: Figure, name: str, csv_link: str, cite: str = "") -> str:
    """Write one ``<figure>``; without panels, a sentence that says what is missing.

    Args:
        figure: what to show.
        name: unique on the site and safe in an id.
        csv_link: where its table can be downloaded, relative to the page.
        cite: how to link to it and to cite it, as :func:`citation_html` writes it; nothing for a figure of no records.
    """
    rows = figure.rows if figure.row_key else figure.rows[:MOST_ROWS]
    same, heads, columns = _split_columns(rows)
    about = f"In every row: {_pairs(rows[0], same)}." if same else ""
    if len(rows) < len(figure.rows):
        about = f"The first {len(rows)} of {len(figure.rows):,} rows; the CSV file has all of them. {about}"
    numeric = {
        column: Markup(' class="fr-n"')
        for column in columns
        if all(isinstance(row.get(column), int | float | None) for row in figure.rows)
    }
    alone = len(figure.panels) == 1
    return _TEMPLATES.get_template("figure.html").render(
        figure=figure,
        name=name,
        panels=[(panel, _chart(name, index), alone or panel.wide) for index, panel in enumerate(figure.panels)],
        about=about,
        columns=columns,
        numeric={column: numeric.get(column, "") for column in columns},
        groups=[(_pairs(group[0], heads), group) for group in _runs(rows, heads)],
        row_name=lambda row: " ".join(cell_text(row[column]) for column in figure.row_key),
        csv_link=csv_link,
        cite=Markup(cite),  # noqa: S704 - written by a template
    )


def specifications(figure: Figure, name: str) -> dict[str, dict[str, Any]]:
    """Give what the panels of a figure are drawn anew from: the name of each in the page to its specification."""
    return {_chart(name, index): specification(panel) for index, panel in enumerate(figure.panels)}


def _chart(name: str, index: int) -> str:
    return f"{name}-{index}"


def swatch(key: Key) -> Markup:
    """Draw the mark of a legend."""
    picture = (
        f'<svg class="fr-swatch" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="{key.colour}"'
        f"{edge(key)}>{SYMBOLS[key.shape]}</svg>"
    )
    return Markup(picture)  # noqa: S704 - colours and shapes are of the palette


def _split_columns(rows: Sequence[Row]) -> tuple[list[str], list[str], list[str]]:
    """Split columns: those of one value throughout, said once; those that head groups of rows; the others."""
    names = columns(rows)
    same = [name for name in names if len(rows) > 1 and len({row.get(name) for row in rows}) == 1]
    same = same if len(same) < len(names) else same[1:]
    varied = [name for name in names if name not in same]
    heads: list[str] = []
    for name in varied[:-1]:
        if len(list(_runs(rows, [*heads, name]))) * FEWEST_IN_GROUP > len(rows):
            break
        heads.append(name)
    return same, heads, varied[len(heads) :]


def _runs(rows: Sequence[Row], names: Sequence[str]) -> Iterator[list[Row]]:
    """Rows that follow one another and have the same values."""
    return (list(group) for _, group in groupby(rows, lambda row: [row.get(name) for name in names]))


def _pairs(row: Row, names: Sequence[str]) -> str:
    return "; ".join(f"{name}: {cell_text(row.get(name))}" for name in names)


def columns(rows: Sequence[Row]) -> list[str]:
    """List the columns of a table in order of appearance; rows need not have all of them."""
    return list(dict.fromkeys(name for row in rows for name in row))


def cell_text(value: Any) -> str:
    """Write a value of a table: numbers to four significant digits, null as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return words.number(value, 4) if isinstance(value, float) else str(value)


def figure_csv(figure: Figure) -> str:
    """Write a figure's table as CSV, numbers in full precision, null as an empty field."""
    sink = io.StringIO()
    names = columns(figure.rows)
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([csv_field(row.get(column)) for column in names] for row in figure.rows)
    return sink.getvalue()


def csv_field(value: Any) -> Any:
    """Give a value as a CSV file holds it: text that a spreadsheet would run begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def citation_html(citation: Citation, links: Mapping[str, str]) -> str:
    """Write the panel under a figure, and its permalink; ``links`` are kinds of ``FILES`` to relative addresses."""
    return _cite(citation.forms(), citation.title, citation.link, citation=citation, links=links)


def forms_html(texts: Mapping[str, str], what: str, link: str = "") -> Markup:
    """Write a citation in every form, each in one piece that can be selected.

    ``what`` is cited, for the names of the buttons that a script adds; ``link`` is the address in the texts, which
    pages do not know whole and a script completes.
    """
    return _cite(texts, what, link, citation=None, links={})


def _cite(texts: Mapping[str, str], what: str, link: str, **values: Any) -> Markup:
    address = Markup('<span class="fr-address">{}</span>').format(link)
    forms = {form: escape(text).replace(escape(link), address) if link else text for form, text in texts.items()}
    html = _TEMPLATES.get_template("cite.html").render(forms=forms, what=what, **values)
    return Markup(html)  # noqa: S704 - written by a template


def folded(summary: str, body: str, *, unfolded: bool = False, style: str = "") -> str:
    """Fold HTML, which has no folded part of its own, behind text, or ``Markup``, that is always seen.

    Raises:
        ValueError: :func:`later` refuses the body.
    """
    kind = f' class="{style}"' if style else ""
    opened = " open" if unfolded else ""
    content = body if unfolded else later(body)
    return f"<details{kind}{opened}><summary>{escape(summary)}</summary>{content}</details>\n"


def later(body: str) -> str:
    """Write HTML inside of a folded part so that it is read when that is opened; nothing for nothing.

    Raises:
        ValueError: the HTML has such a part of its own, or the place of a figure, which has one: at its end a browser
            would end this one.
    """
    if _PARTED.search(body):
        raise ValueError("a folded part lies in another; expected HTML without one")
    return body and f"<noscript>{body}</noscript>"


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {
    "svg": lambda *args: Markup(svg(*args)),  # noqa: S704 - drawn by Vega, which escapes what it is given
    "wide_px": WIDE,
    "swatch": swatch,
    "cell_text": cell_text,
    "folded": lambda *args, **options: Markup(folded(*args, **options)),  # noqa: S704 - its parts are Markup
}
