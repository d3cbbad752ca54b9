"""What a reader sees of HTML: its words, and the cells of its tables."""

from __future__ import annotations

import re
from html import unescape


def plain(html: str) -> str:
    """Text without tags, each run of white space one space."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def table_rows(html: str) -> list[list[str]]:
    """The cells of every row of the tables, headings left out."""
    lines = (re.findall(r"<td.*?</td>", line, re.DOTALL) for line in re.findall(r"<tr.*?</tr>", html, re.DOTALL))
    return [[plain(cell) for cell in line] for line in lines if line]
