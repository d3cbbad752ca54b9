"""A report in parts, printed on a terminal or written as Markdown: the same words in both.

What parts say may hold text from files of others: it becomes one line without control characters, and no markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.redaction import one_line

_FIRM = 24
"""Characters up to which the texts of a column are kept on one line."""
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


def cells(*texts: str) -> tuple[Cell, ...]:
    """Make cells of plain texts."""
    return tuple(Cell(text) for text in texts)


def show(sections: Iterable[Section], console: Console) -> None:
    """Print a report.

    Args:
        sections: its parts.
        console: where it goes.
    """
    for section in sections:
        _say(console, f"\n{one_line(section.title)}", "bold")
        for line in section.lines:
            _say(console, f"  {one_line(line)}")
        if section.rows:
            console.print(_table(section))
        for head, said in section.items:
            _say(console, f"  {one_line(head)}", "bold")
            for line in said:
                _say(console, f"    {one_line(line)}")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _table(section: Section) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for place, name in enumerate(section.columns):
        column = [row[place] for row in section.rows]
        numbers = all(_NUMBER.fullmatch(cell.text) for cell in column)
        firm = max(len(cell.text) for cell in column) <= _FIRM
        table.add_column(Text(one_line(name)), justify="right" if numbers else "left", no_wrap=firm)
    for row in section.rows:
        table.add_row(*(Text(cell.text if cell.bar else one_line(cell.text), cell.colour) for cell in row))
    return table


def markdown(title: str, sections: Iterable[Section]) -> str:
    """Write a report as Markdown.

    Args:
        title: of the whole.
        sections: its parts.
    """
    parts = [f"# {escaped(title)}"]
    for section in sections:
        parts += [f"## {escaped(section.title)}", *map(escaped, section.lines)]
        if section.rows:
            rule = "|".join("---" for _ in section.columns)
            head = " | ".join(map(escaped, section.columns))
            rows = [f"| {' | '.join(map(_written, row))} |" for row in section.rows]
            parts.append("\n".join([f"| {head} |", f"|{rule}|", *rows]))
        if section.items:
            parts.append("\n".join(_item(head, said) for head, said in section.items))
    return "\n\n".join(parts) + "\n"


def _item(head: str, said: Sequence[str]) -> str:
    return "\n".join([f"- **{escaped(head)}**", *(f"  - {escaped(line)}" for line in said)])


def _written(cell: Cell) -> str:
    return f"`{cell.text.replace(' ', chr(0xA0))}`" if cell.bar else escaped(cell.text)


def escaped(text: str) -> str:
    """Write text so that Markdown finds no markup, no HTML and no link in it, on one line.

    Args:
        text: anything.
    """
    return _MARKUP.sub(lambda found: f"\\{found[0]}", one_line(text))
