"""Some rows of a table as arrays, and what the manifests say that they belong to.

Rules look at many rows at a time, of one large file or of many small ones: ``source`` says which file a row is of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.manifest import RunManifest

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
        """Take rows.

        Args:
            name: of their table, in ``records.TABLES``.
            table: with texts as dictionaries; each column may lie in several chunks.
            sources: manifests of the runs that they are of.
            source: for each row, which of them; the first for all if not given.
            first: number of the first row in its file, for findings.
        """
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
