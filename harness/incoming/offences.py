"""How rules over rows are written, and how what breaks them is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from harness.incoming.findings import Finding, Refused, Rule, shown
from harness.incoming.rows import Mask, Rows

SHOWN = 3
"""Columns or reasons of one rule that are told one by one."""


@dataclass(frozen=True, slots=True)
class Offence:
    """Rows that break a rule in one way."""

    column: str
    rows: Mask
    """A truth a row."""
    got: Callable[[int], str]
    """Says of the row of a number what it holds."""
    expected: str


@dataclass(frozen=True, slots=True)
class RowRule(Rule):
    """A rule that every row keeps to, whatever the others are."""

    find: Callable[[Rows], Iterable[Offence]]


def broken(rules: Iterable[RowRule], rows: Rows, where: str) -> Iterator[Finding]:
    """List what breaks rules, for each rule a few columns at most.

    Args:
        rules: in the order in which they are tried.
        rows: of one file.
        where: its name.
    """
    for rule in rules:
        offences = (offence for offence in rule.find(rows) if offence.rows.any())
        for offence, _ in zip(offences, range(SHOWN), strict=False):
            count, at = int(offence.rows.sum()), int(np.argmax(offence.rows))
            more = f" and {count - 1} more" if count > 1 else ""
            place = f"{where} column {offence.column} row {rows.first + at}{more}"
            yield Finding(rule.name, "refused", place, offence.got(at), offence.expected)


def any_broken(rules: Iterable[RowRule], rows: Rows) -> bool:
    """Whether any row breaks any rule."""
    return any(offence.rows.any() for rule in rules for offence in rule.find(rows))


def held(rows: Rows, name: str) -> Callable[[int], str]:
    """Give what says of a row what a column holds there; nothing where there is no such column.

    Args:
        rows: of one file.
        name: of the column.
    """
    if name not in rows.table.column_names:
        return lambda _: "nothing"
    return lambda row: shown(rows.table.column(name)[row].as_py())


def refused(rule: Rule, where: str, got: str, expected: str) -> Finding:
    """Say that a file breaks a rule."""
    return Refused(rule.name, where, got, expected).finding
