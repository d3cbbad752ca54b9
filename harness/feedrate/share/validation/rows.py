"""Some rows of a table as arrays, and the manifests of the runs that they belong to.

Rules look at many rows at a time, of one large file or of many small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feedrate.share.validation.findings import quote
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

    def spread(self, of_words: Any, null: bool) -> Mask:
        """Give every row the value of its word, and ``null`` where its text is null."""
        return np.append(np.asarray(of_words, dtype=np.bool_), null)[self.codes]

    def matches(self, pattern: str, *, null: bool = True) -> Mask:
        """Say of every row whether its text matches a regular expression (RE2) from end to end."""
        return self.spread(pc.match_substring_regex(self.words, f"^(?:{pattern})$"), null)

    def one_of(self, *options: str, null: bool = False) -> Mask:
        """Say of every row whether its text is one of a few."""
        return self.spread(pc.is_in(self.words, value_set=pa.array(options, pa.string())), null)

    def used(self) -> dict[str, int]:
        """Map the texts that rows have to their codes."""
        return {str(self.words[code].as_py()): code for code in np.unique(self.codes).tolist() if code != NULL}

    def text(self, row: int) -> str | None:
        """The text of a row."""
        return None if self.codes[row] == NULL else str(self.words[int(self.codes[row])].as_py())


class Rows:
    """Rows of one table."""

    def __init__(
        self, name: str, table: pa.Table, runs: Sequence[RunManifest], run_of: Codes | None = None, first: int = 0
    ) -> None:
        """Take rows.

        Args:
            name: of the table.
            table: with texts as dictionaries; a column that is missing counts as null throughout.
            runs: the manifests of the runs that the rows are of.
            run_of: for each row the place of its run among them; None where there is one run.
            first: the number in its file of the first row.
        """
        self.name = name
        self.table = table.unify_dictionaries().combine_chunks()
        self.runs = runs
        self.run_of = np.zeros(len(table), dtype=np.int64) if run_of is None else run_of
        self.first = first
        self._names = set(table.column_names)
        self._numbers: dict[str, Floats] = {}
        self._texts: dict[str, Texts] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __contains__(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self._names

    def column(self, name: str) -> Any:
        """A column in one piece; None where there is none."""
        if name not in self:
            return None
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks else column.combine_chunks()

    def holds(self, name: str) -> bool:
        """Whether a column has a value in any row."""
        column = self.column(name)
        return column is not None and column.null_count < len(column)

    def valid(self, name: str) -> Mask:
        """Say of every row whether a column is not null."""
        column = self.column(name)
        none: Mask = np.zeros(len(self), dtype=np.bool_)
        return none if column is None else pc.is_valid(column).to_numpy(zero_copy_only=False)

    def number(self, name: str) -> Floats:
        """A column of numbers or truths as float64; NaN where it is null."""
        if name not in self._numbers:
            if self.holds(name):
                column = self.column(name)
                column = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
                self._numbers[name] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            else:
                self._numbers[name] = np.full(len(self), np.nan)
        return self._numbers[name]

    def text(self, name: str) -> Texts:
        """A column of texts."""
        if name not in self._texts:
            if (column := self.column(name)) is None:
                self._texts[name] = Texts(np.full(len(self), NULL), pa.array([], pa.string()))
            else:
                codes = pc.fill_null(column.indices, NULL).to_numpy(zero_copy_only=False).astype(np.int64)
                self._texts[name] = Texts(codes, column.dictionary)
        return self._texts[name]

    def equals(self, name: str, of_run: Callable[[RunManifest], str]) -> Mask:
        """Say of every row whether a text is the one that its run's manifest has."""
        texts = self.text(name)
        wanted = np.array([pc.index(texts.words, of_run(run)).as_py() for run in self.runs], dtype=np.int64)
        return np.asarray((texts.codes == wanted[self.run_of]) & (texts.codes != NULL))

    def quote(self, name: str, row: int) -> str:
        """Show what a column holds in a row."""
        return quote(self.table.column(name)[row].as_py()) if name in self else "nothing"
