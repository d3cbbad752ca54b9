"""What a reader sees of HTML: its words, and the cells of its tables."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feedrate.pages.markup import Page

NOTHING = re.compile(r"\bNone\b|\bnan\b|<NA>|NaN")
"""What a value that is not there must not be shown as."""


def plain(html: str) -> str:
    """Text without tags, each run of white space one space."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def page_text(page: Page) -> str:
    """What a page says, its figures included."""
    return plain(page.body + "".join(placed.html for placed in page.figures.values()))


def table_rows(html: str) -> list[list[str]]:
    """The cells of every row of the tables, headings left out."""
    lines = (re.findall(r"<td.*?</td>", line, re.DOTALL) for line in re.findall(r"<tr.*?</tr>", html, re.DOTALL))
    return [[plain(cell) for cell in line] for line in lines if line]
