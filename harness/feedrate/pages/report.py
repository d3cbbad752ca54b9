"""A report in parts, printed on a terminal or written as Markdown: the same words in both.

What parts say may hold text from files of others: it becomes one line without control characters, and no markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from feedrate.schema.redaction import one_line

_FIRM = 24
"""Characters up to which the texts of a column are kept on one line."""
_FIRM_FROM, _BARS_FROM = 80, 100
"""Characters of a terminal from which on they are, and from which on there are bars."""
_NUMBER = re.compile(r"[\d,.]*")
_MARKUP = re.compile(r"[\\`*\[\]<>|~$&#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=:)//|(?<=www)\.")
"""What Markdown would make something of, links that need no brackets among it."""


class Cell(NamedTuple):
    """What stands in a table."""

    text: str
    colour: str = ""
    bar: bool = False
    """Whether it is drawn with signs of equal width."""


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a report."""

    title: str
    lines: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    items: Sequence[tuple[str, Sequence[str]]] = ()
    """Headings with what is said of each."""
    bars: str = ""
    """What its bars mean; said where they are drawn."""


def cells(*texts: str) -> tuple[Cell, ...]:
    """Make cells of plain texts."""
    return tuple(Cell(text) for text in texts)


def show(sections: Iterable[Section], console: Console) -> None:
    """Print a report."""
    for section in sections:
        console.print()
        _say(console, section.title, style="bold")
        for line in section.lines:
            _say(console, line, 2)
        if section.rows:
            table, has_bars = _table(section, console.width)
            console.print(table)
            if has_bars and section.bars:
                _say(console, section.bars, 2)
        for head, lines in section.items:
            _say(console, head, 2, style="bold")
            for line in lines:
                _say(console, line, 4)


def _say(console: Console, text: str, indent: int = 0, style: str = "") -> None:
    """Print a line; what does not fit on it goes on below its beginning."""
    console.print(Padding(Text(one_line(text), style), (0, 0, 0, indent), expand=False))


def _table(section: Section, width: int) -> tuple[Table, bool]:
    """The table of a section, and whether it has bars: they repeat what numbers say, and take room."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    shown = [at for at in range(len(section.columns)) if width >= _BARS_FROM or not section.rows[0][at].bar]
    for at in shown:
        texts = [one_line(row[at].text) for row in section.rows]
        justify: Literal["right", "left"] = "right" if all(map(_NUMBER.fullmatch, texts)) else "left"
        firm = width >= _FIRM_FROM and max(map(len, texts)) <= _FIRM
        table.add_column(Text(one_line(section.columns[at])), justify=justify, no_wrap=firm, overflow="fold")
    for row in section.rows:
        cells = [row[at] for at in shown]
        table.add_row(*(Text(cell.text if cell.bar else one_line(cell.text), cell.colour) for cell in cells))
    return table, any(cell.bar for cell in section.rows[0]) and width >= _BARS_FROM


def markdown(title: str, sections: Iterable[Section]) -> str:
    """Write a report as Markdown."""
    parts = [f"# {escaped(title)}"]
    for section in sections:
        parts += [f"## {escaped(section.title)}", *map(escaped, section.lines)]
        if section.rows:
            lines = [
                f"| {' | '.join(map(escaped, section.columns))} |",
                f"|{'|'.join('---' for _ in section.columns)}|",
            ]
            lines += [f"| {' | '.join(map(_written, row))} |" for row in section.rows]
            parts.append("\n".join(lines))
            parts += [escaped(section.bars)] * bool(section.bars)
        if section.items:
            lines = []
            for head, below in section.items:
                lines += [f"- **{escaped(head)}**", *(f"  - {escaped(line)}" for line in below)]
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _written(cell: Cell) -> str:
    return f"`{cell.text.replace(' ', chr(0xA0))}`" if cell.bar else escaped(cell.text)


def escaped(text: str) -> str:
    """Write text so that Markdown finds no markup, no HTML and no link in it, on one line."""
    return _MARKUP.sub(lambda match: f"\\{match[0]}", one_line(text))
