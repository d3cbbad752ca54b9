"""Some rows of a table as arrays, and what the manifests say that they belong to.

Rules look at many rows at a time, of one large file or of many small ones: ``source`` says which file a row is of.

How rules over rows are written, and how what breaks them is said.

Cells of others: their ids are computed anew from their axes, which must be ones that a matrix could name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feedrate.schema.axes import AXES, BY_NAME, Axis, Value, applicable, cell_id
from feedrate.schema.errors import InputError
from feedrate.share.validation.findings import Finding, Refused, Rule, shown
from feedrate.store.manifest import RunManifest

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NULL = -1
"""Code of a text that is null."""


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts: a number for each row, and what the numbers stand for."""

    codes: Codes
    """Into ``words``; ``NULL`` for null."""
    words: pa.Array
    """Distinct texts."""

    def each(self, told: Mask, null: bool = False) -> Mask:
        """Say of every row what is said of every word.

        Args:
            told: a value a word.
            null: what is said of null.
        """
        return np.append(np.asarray(told, dtype=np.bool_), null)[self.codes]

    def matching(self, pattern: str, *, null: bool = True) -> Mask:
        """Say of every row whether its text matches a regular expression (RE2) from end to end."""
        return self.each(pc.match_substring_regex(self.words, f"^(?:{pattern})$").to_numpy(zero_copy_only=False), null)

    def one_of(self, options: Sequence[str], *, null: bool = True) -> Mask:
        """Say of every row whether its text is one of a few."""
        found = pc.is_in(self.words, value_set=pa.array(options, pa.string()))
        return self.each(found.to_numpy(zero_copy_only=False), null)

    def code(self, text: str) -> int:
        """Find the code of a text; one that no row has where it is not there."""
        found = int(pc.index(self.words, pa.scalar(text, self.words.type)).as_py())
        return found if found >= 0 else NULL - 1

    def text(self, row: int) -> str | None:
        """The text of a row."""
        return None if self.codes[row] == NULL else str(self.words[int(self.codes[row])].as_py())


class Rows:
    """Rows of one table."""

    def __init__(
        self,
        name: str,
        table: pa.Table,
        sources: Sequence[RunManifest],
        source: Codes | None = None,
        first: int = 0,
    ) -> None:
        """Take rows."""
        self.name = name
        self.table = table.unify_dictionaries().combine_chunks()
        self.sources = sources
        self.source: Codes = np.zeros(len(table), dtype=np.int64) if source is None else source
        self.first = first
        self._there = set(table.column_names)
        self._numbers: dict[str, Floats] = {}
        self._texts: dict[str, Texts] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def holds(self, name: str) -> bool:
        """Whether a column has a value in any row."""
        column = self._column(name)
        return column is not None and column.null_count < len(column)

    def number(self, name: str) -> Floats:
        """A column of numbers or truths as float64; NaN where it is null, and throughout where there is none."""
        if name not in self._numbers:
            self._numbers[name] = self._as_floats(name)
        return self._numbers[name]

    def _as_floats(self, name: str) -> Floats:
        column = self._column(name)
        if column is None or column.null_count == len(column):
            return self._unknown
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        found: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return found

    def known(self, name: str) -> Mask:
        """Whether a column is not null."""
        column = self._column(name)
        if column is None:
            return np.zeros(len(self), dtype=np.bool_)
        found: Mask = pc.is_valid(column).to_numpy(zero_copy_only=False)
        return found

    def text(self, name: str) -> Texts:
        """A column of texts; all null where there is none."""
        if name not in self._texts:
            column = self._column(name)
            if column is None:
                self._texts[name] = Texts(np.full(len(self), NULL), pa.array([], pa.string()))
            else:
                codes = pc.fill_null(column.indices, NULL).to_numpy(zero_copy_only=False).astype(np.int64)
                self._texts[name] = Texts(codes, column.dictionary)
        return self._texts[name]

    def said(self, name: str, told: Callable[[RunManifest], str]) -> Mask:
        """Say of every row whether a text is what its run's manifest says."""
        column = self.text(name)
        wanted = np.array([column.code(told(run)) for run in self.sources], dtype=np.int64)
        return np.asarray(column.codes == wanted[self.source])

    def of_sources(self, told: Callable[[RunManifest], float]) -> Floats:
        """A number of each row's run."""
        return np.array([told(run) for run in self.sources], dtype=np.float64)[self.source]

    def _column(self, name: str) -> Any:
        if name not in self._there:
            return None
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks else column.combine_chunks()

    @cached_property
    def _unknown(self) -> Floats:
        return np.full(len(self), np.nan)


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
    """List what breaks rules, for each rule a few columns at most."""
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
    """Give what says of a row what a column holds there; nothing where there is no such column."""
    if name not in rows.table.column_names:
        return lambda _: "nothing"
    return lambda row: shown(rows.table.column(name)[row].as_py())


def refused(rule: Rule, where: str, got: str, expected: str) -> Finding:
    """Say that a file breaks a rule."""
    return Refused(rule.name, where, got, expected).finding


Named = tuple[tuple[str, Value], ...]
"""Axes that a row sets, by name."""
Problem = tuple[str, str, str]
"""Column, what it holds, what was expected."""


def cells(rows: Rows) -> Iterator[Offence]:
    """Find rows whose axes are not those of their cell, and cells whose id or axes are wrong."""
    ids, device = rows.text("cell_id"), rows.text("device")
    keys = (rows.source * (len(ids.words) + 1) + ids.codes) * (len(device.words) + 1) + device.codes
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    like: Codes = first[inverse.reshape(-1)]
    there = [axis for axis in AXES if rows.holds(axis.name)]
    for axis in there:
        values = rows.text(axis.name).codes if axis.type is str else rows.number(axis.name)
        alike = (values == values[like]) | (np.isnan(values) & np.isnan(values[like]))
        yield Offence(axis.name, ~alike, held(rows, axis.name), "the value of the first row of its cell")
    wrong: dict[tuple[str, str], list[int]] = {}
    got: dict[int, str] = {}
    for row in first.tolist():
        if problem := problem_of(_set(rows, there, row), device.text(row) or "", ids.text(row) or ""):
            column, got[row], expected = problem
            wrong.setdefault((column, expected), []).append(row)
    for (column, expected), places in wrong.items():
        mask = np.zeros(len(rows), dtype=np.bool_)
        mask[places] = True
        yield Offence(column, mask, got.__getitem__, expected)


@lru_cache(maxsize=1 << 16)
def problem_of(cell: Named, device: str, said: str) -> Problem | None:
    """Say what is wrong with a cell."""
    axes = dict(cell)
    for name, value in cell:
        try:
            BY_NAME[name].checked(value, name)
        except InputError as error:
            return name, shown(value), str(error).rpartition("; expected ")[2]
    _, idle = applicable({axis.name: axis.default for axis in AXES} | axes, device)
    for name, value in cell:
        if name in idle and value != BY_NAME[name].default:
            return name, shown(value), f"nothing: {idle[name]}"
    wanted = cell_id(axes)
    return None if wanted == said else ("cell_id", shown(said), f"{wanted} by its axes")


def _set(rows: Rows, there: list[Axis], row: int) -> Named:
    """The axes that a row sets."""
    found: list[tuple[str, Value]] = []
    for axis in there:
        if axis.type is str:
            if (text := rows.text(axis.name).text(row)) is not None:
                found.append((axis.name, text))
        elif not np.isnan(number := rows.number(axis.name)[row]):
            found.append((axis.name, axis.type(number)))
    return tuple(found)
