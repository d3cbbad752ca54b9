"""A report in parts, printed on a terminal or written as Markdown: the same words in both.

What parts say may hold text from files of others: it becomes one line without control characters, and no markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from feedrate.schema.redaction import one_line

_FIRM = 24
"""Characters up to which the texts of a column are kept on one line."""
_FIRM_FROM = 80
"""Characters of a terminal from which on they are."""
_NUMBER = re.compile(r"[\d,.]*")
_MARKUP = re.compile(r"[\\`*\[\]<>|~$&#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=:)//|(?<=www)\.")
"""What Markdown would make something of, links that need no brackets among it."""


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a report."""

    title: str
    lines: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    items: Sequence[tuple[str, Sequence[str]]] = ()
    """Headings with what is said of each."""


def show(sections: Iterable[Section], console: Console) -> None:
    """Print a report."""
    for section in sections:
        console.print()
        _say(console, section.title, style="bold")
        for line in section.lines:
            _say(console, line, 2)
        if section.rows:
            console.print(_table(section, console.width))
        for head, lines in section.items:
            _say(console, head, 2, style="bold")
            for line in lines:
                _say(console, line, 4)


def _say(console: Console, text: str, indent: int = 0, style: str = "") -> None:
    """Print a line; what does not fit on it goes on below its beginning."""
    console.print(Padding(Text(one_line(text), style), (0, 0, 0, indent), expand=False))


def _table(section: Section, width: int) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    rows = [[one_line(text) for text in row] for row in section.rows]
    for heading, texts in zip(section.columns, zip(*rows, strict=True), strict=True):
        justify: Literal["right", "left"] = "right" if all(map(_NUMBER.fullmatch, texts)) else "left"
        firm = width >= _FIRM_FROM and max(map(len, texts)) <= _FIRM
        table.add_column(Text(one_line(heading)), justify=justify, no_wrap=firm, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def markdown(title: str, sections: Iterable[Section]) -> str:
    """Write a report as Markdown."""
    parts = [f"# {escaped(title)}"]
    for section in sections:
        parts += [f"## {escaped(section.title)}", *map(escaped, section.lines)]
        if section.rows:
            lines: list[Sequence[str]] = [section.columns, ["---"] * len(section.columns), *section.rows]
            parts.append("\n".join(f"| {' | '.join(map(escaped, line))} |" for line in lines))
        if section.items:
            items = []
            for head, below in section.items:
                items += [f"- **{escaped(head)}**", *(f"  - {escaped(line)}" for line in below)]
            parts.append("\n".join(items))
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Write text so that Markdown finds no markup, no HTML and no link in it, on one line."""
    return _MARKUP.sub(lambda match: f"\\{match[0]}", one_line(text))
