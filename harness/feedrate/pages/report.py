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
_READ = 20
"""Characters that a column of longer texts needs to be read."""
_WORD = 32
"""Characters of a word beyond which it may be broken."""
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
    """Print a report.

    Args:
        sections: its parts.
        console: where it goes.
    """
    for section in sections:
        console.print()
        _say(console, one_line(section.title), style="bold")
        for line in section.lines:
            _say(console, one_line(line), 2)
        if section.rows:
            places = _places(section, console.width)
            console.print(_table(section, places, console.width))
            if section.bars and any(section.rows[0][place].bar for place in places):
                _say(console, one_line(section.bars), 2)
        for head, said in section.items:
            _say(console, one_line(head), 2, style="bold")
            for line in said:
                _say(console, one_line(line), 4)


def _say(console: Console, text: str, indent: int = 0, style: str = "") -> None:
    """Print a line; what does not fit on it goes on below its beginning."""
    console.print(Padding(Text(text, style), (0, 0, 0, indent), expand=False))


def _texts(section: Section, place: int) -> list[str]:
    """What stands in a column, its name first."""
    return [section.columns[place], *(row[place].text for row in section.rows)]


def _least(texts: Sequence[str]) -> int:
    """Characters that a column takes at least: its texts where they are kept on one line, else its longest word."""
    if (longest := max(map(len, texts))) <= _FIRM:
        return longest
    return min(max(_READ, *(len(word) for text in texts for word in text.split())), _WORD)


def _room(section: Section, places: Sequence[int]) -> int:
    """Characters that a table of some columns takes at least."""
    return sum(_least(_texts(section, place)) + 2 for place in places)


def _places(section: Section, width: int) -> list[int]:
    """The columns for which there is room: bars repeat what numbers say, and go first."""
    every = range(len(section.columns))
    if _room(section, every) <= width:
        return list(every)
    return [place for place in every if not section.rows[0][place].bar]


def _table(section: Section, places: Sequence[int], width: int) -> Table:
    """Some columns of a section; where there is no room for what they need at least, numbers break, digits stay."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    fits = _room(section, places) <= width
    for place in places:
        name, *texts = _texts(section, place)
        numbers = all(map(_NUMBER.fullmatch, texts))
        firm = fits and max(map(len, (name, *texts))) <= _FIRM
        justify: Literal["right", "left"] = "right" if numbers else "left"
        table.add_column(Text(one_line(name)), justify=justify, no_wrap=firm, overflow="fold")
    for row in section.rows:
        shown = [row[place] for place in places]
        table.add_row(*(Text(cell.text if cell.bar else one_line(cell.text), cell.colour) for cell in shown))
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
            parts += [escaped(section.bars)] * bool(section.bars)
        if section.items:
            parts.append("\n".join(_item(head, said) for head, said in section.items))
    return "\n\n".join(parts) + "\n"


def _item(head: str, said: Sequence[str]) -> str:
    return "\n".join([f"- **{escaped(head)}**", *(f"  - {escaped(line)}" for line in said)])


def _written(cell: Cell) -> str:
    return f"`{cell.text.replace(' ', chr(0xA0))}`" if cell.bar else escaped(cell.text)


def escaped(text: str) -> str:
    """Write text so that Markdown finds no markup, no HTML and no link in it, on one line."""
    return _MARKUP.sub(lambda found: f"\\{found[0]}", one_line(text))
