"""A figure as HTML: static pictures first, live on demand, with legend, messages, table and data to download.

The page needs no script: pictures are SVG, numbers are tables. With scripts, a panel that is pointed at or focused is
drawn anew by Vega, from a specification that the page asks for only then. Everything is escaped here; nothing is
trusted.

What a page holds folded behind a sentence.

Most elements of a page are cells of folded tables. A browser that runs scripts reads a ``<noscript>`` as text, which
costs it next to nothing, and ``site/scripts/site/folded.js`` makes that text part of the page when a reader unfolds it.
Without scripts it is part of the page from the beginning.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

from feedrate.charts.figure import Figure, Key, Panel, Row
from feedrate.charts.render import SYMBOLS, WIDE, edge, specification, svg
from feedrate.schema import words

MOST_ROWS = 100
"""Of a table beside a figure; all of them are in its CSV file."""
FEWEST_IN_GROUP = 4
"""Rows that a group has on the average where what they share is said above them."""


def figure_html(figure: Figure, name: str, csv_link: str, cite: str = "") -> str:
    """Write a figure.

    Args:
        figure: what to show.
        name: unique on the site and safe in an id.
        csv_link: where its table can be downloaded, relative to the page.
        cite: how to link to it and to cite it, as ``_cited.foot`` writes it; nothing for a figure of no records.

    Returns:
        One ``<figure>``; without panels, a sentence that says what is missing.
    """
    head = f'<figcaption class="fr-question">{escape(figure.question)}</figcaption>'
    if not figure.panels:
        return (
            f'<figure class="fr-figure fr-empty" id="{name}" data-search-exclude>{head}'
            f'<p class="fr-missing">{escape(figure.missing)}</p></figure>'
        )
    alone = len(figure.panels) == 1
    panels = "".join(
        _panel_html(panel, _chart(name, place), alone or panel.wide) for place, panel in enumerate(figure.panels)
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in figure.notes)
    numbers = f'{_table(figure, name)}<p><a href="{escape(csv_link)}" download>Download as CSV</a></p>'
    return (
        f'<figure class="fr-figure" id="{name}" data-search-exclude>{head}{_legend(figure.keys)}'
        f'<div class="fr-panels">{panels}</div>'
        f"{f'<ul class=fr-notes>{notes}</ul>' if notes else ''}"
        f"{folded('The numbers as a table', numbers, style='fr-data')}{cite}</figure>"
    )


def specifications(figure: Figure, name: str) -> dict[str, dict[str, Any]]:
    """Give what the panels of a figure are drawn anew from: the name of each in the page to its specification.

    Args:
        figure: what is shown.
        name: as in ``figure_html``.
    """
    return {_chart(name, place): specification(panel) for place, panel in enumerate(figure.panels)}


def _chart(name: str, place: int) -> str:
    return f"{name}-{place}"


def _panel_html(panel: Panel, name: str, wide: bool) -> str:
    """Write a panel, which may have a second picture for wide screens."""
    label = escape(f"{panel.title}, {panel.subtitle}. {panel.message}")
    second = f'<div class="fr-static fr-wide" aria-hidden="true">{svg(panel, f"{name}w", WIDE)}</div>' if wide else ""
    return (
        f'<div class="fr-panel{" fr-alone" if wide else ""}">'
        f'<div class="fr-chart" data-chart="{name}" role="img" tabindex="0" aria-label="{label}">'
        f'<div class="fr-static" aria-hidden="true">{svg(panel, name)}</div>{second}</div>'
        f'<p class="fr-message">{escape(panel.message)}</p></div>'
    )


def _legend(keys: Sequence[Key]) -> str:
    if not keys:
        return ""
    items = "".join(f"<li>{swatch(key)}{escape(key.label)}</li>" for key in keys)
    return f'<ul class="fr-legend">{items}</ul>'


def swatch(key: Key) -> str:
    """Draw the mark of a legend."""
    return (
        f'<svg class="fr-swatch" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="{key.colour}"'
        f"{edge(key)}>{SYMBOLS[key.shape]}</svg>"
    )


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


def _table(figure: Figure, name: str) -> str:
    rows = figure.rows if figure.row_key else figure.rows[:MOST_ROWS]
    same, heads, names = _parted(rows)
    said = f"In every row: {_pairs(rows[0], same)}." if same else ""
    if len(rows) < len(figure.rows):
        said = f"The first {len(rows)} of {len(figure.rows):,} rows; the CSV file has all of them. {said}"
    about = f"<p class=fr-same>{escape(said)}</p>" if said else ""
    numeric = {
        column for column in names if all(isinstance(row.get(column), int | float | None) for row in figure.rows)
    }
    head = "".join(f'<th scope="col"{_number(column in numeric)}>{escape(column)}</th>' for column in names)
    bodies = ""
    for part in _runs(rows, heads):
        lines = "".join(_line(row, names, numeric, figure.row_key) for row in part)
        bodies += f"<tbody>{_group(part[0], heads, len(names))}{lines}</tbody>"
    return (
        f'{about}<div class="fr-scroll" tabindex="0" role="group" aria-label="Table: {escape(figure.title)}">'
        f'<table class="fr-table" id="{name}-table"><caption class="fr-hidden">{escape(figure.title)}</caption>'
        f"<thead><tr>{head}</tr></thead>{bodies}</table></div>"
    )


def _parted(rows: Sequence[Row]) -> tuple[list[str], list[str], list[str]]:
    """Part the columns of a table: those of one value throughout, those that head groups of rows, and the others.

    What many rows share is said once: it need not be read, nor loaded, again and again.
    """
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
    return (list(part) for _, part in groupby(rows, lambda row: [row.get(name) for name in names]))


def _group(row: Row, heads: Sequence[str], width: int) -> str:
    said = escape(_pairs(row, heads))
    return f'<tr><th scope="rowgroup" colspan="{width}">{said}</th></tr>' if heads else ""


def _line(row: Row, names: Sequence[str], numeric: Collection[str], key: Sequence[str]) -> str:
    cells = (f"<td{_number(name in numeric)}>{escape(cell_text(row.get(name)))}</td>" for name in names)
    known_by = f' data-row="{escape(" ".join(cell_text(row[name]) for name in key))}"' if key else ""
    return f"<tr{known_by}>{''.join(cells)}</tr>"


def _pairs(row: Row, names: Sequence[str]) -> str:
    return "; ".join(f"{name}: {cell_text(row.get(name))}" for name in names)


def _number(yes: bool) -> str:
    return ' class="fr-n"' if yes else ""


def figure_csv(figure: Figure) -> str:
    """Write a figure's table as CSV, numbers in full precision, null as an empty field.

    Text that a spreadsheet would run as a formula is written with a leading apostrophe.
    """
    sink = io.StringIO()
    names = columns(figure.rows)
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([csv_field(row.get(column)) for column in names] for row in figure.rows)
    return sink.getvalue()


def csv_field(value: Any) -> Any:
    """Give a value as a CSV file holds it: text that a spreadsheet would run begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


FOLDED = re.compile("<noscript>.*?</noscript>", re.DOTALL)
"""What is read later, in the HTML of a page."""
_PARTED = re.compile('</?noscript|class="fr-slot"')


def folded(summary: str, body: str, *, unfolded: bool = False, style: str = "") -> str:
    """Fold HTML behind a summary.

    Args:
        summary: HTML that is always seen.
        body: HTML that is seen when the part is opened; it has no folded part of its own.
        unfolded: whether it is open from the beginning.
        style: class of the element.

    Raises:
        ValueError: :func:`later` refuses the body.
    """
    kind = f' class="{style}"' if style else ""
    opened = " open" if unfolded else ""
    content = body if unfolded else later(body)
    return f"<details{kind}{opened}><summary>{summary}</summary>{content}</details>\n"


def later(body: str) -> str:
    """Write HTML inside of a folded part so that it is read when that is opened; nothing for nothing.

    Raises:
        ValueError: the HTML has such a part of its own, or the place of a figure, which has one: at its end a browser
            would end this one.
    """
    if _PARTED.search(body):
        raise ValueError("a folded part lies in another; expected HTML without one")
    return body and f"<noscript>{body}</noscript>"
