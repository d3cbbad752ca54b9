"""A table of others, opened and decoded: its rows as frames that rules look at.

In this order: size, magic numbers, footer, rows and columns, names and types of the columns, where the footer places
them, the manifest. The file is read into memory once, so that nobody can change it between two looks. What the footer
hides, such as a page that unpacks to gigabytes, meets the limits of the process that decodes (``guard``).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import filter as matching
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from feedrate.schema.columns import TABLES
from feedrate.share.validation import caps
from feedrate.share.validation.findings import Rule, quote
from feedrate.share.validation.manifest import read_manifest
from feedrate.store.manifest import RunManifest
from feedrate.store.runs import CHECKED
from feedrate.store.tables import MANIFEST_KEY, arrow_schema

MAGIC = b"PAR1"
BATCH_ROWS = 16_384
"""Rows that are decoded at a time."""
_TAIL = 8
"""Bytes behind the footer: its length and the magic number."""
_CHECKED_PAGE = re.compile(rb"(?:\x15[\x80-\xff]{0,9}[\x00-\x7f]){4}")
"""How the header of a page with a checksum begins: its kind, two sizes and the checksum, fields 1 to 4 of a struct of
numbers (0x15) in Thrift's compact protocol. Source: ``parquet.thrift``, PageHeader."""
"""Schema version from which every page carries a checksum of its bytes (CRC-32)."""
_OPTIONS: dict[str, Any] = {
    **CHECKED,
    "pre_buffer": False,
    "arrow_extensions_enabled": False,
    "thrift_string_size_limit": caps.FOOTER_BYTES.most,
    "thrift_container_size_limit": 65_536,
}

_TEXTS = {column.name for columns in TABLES.values() for column in columns if column.dtype == "string"}
PLAIN_FILE = Rule("plain_file", "It is a plain file, neither a link nor a device, and can be read.")
PARQUET = Rule("parquet", "It is a parquet file from its first byte to its last, and not encrypted.")
COLUMN = Rule("column", "Its columns are those of the data dictionary, once each, flat and of the type stated there.")
DECODES = Rule("decodes", "Every value of it can be decoded, no page fails its checksum, and texts are UTF-8.")
CHECKSUMS = Rule("checksums", "Its pages carry checksums.")
CHUNKS = Rule(
    "chunks", "Every column chunk lies within the file, apart from all others, and holds a value a row of its group."
)
RULES = (PLAIN_FILE, PARQUET, COLUMN, DECODES, CHUNKS, CHECKSUMS)


class Rows:
    """Some rows of one table of a run; a column that is not there is null throughout."""

    def __init__(self, name: str, table: pa.Table, run: RunManifest, first: int = 0) -> None:
        self.name, self.run = name, run
        self.table = table.unify_dictionaries()
        self.first = first
        """The number in its file of the first row."""
        columns = zip(table.column_names, self.table.columns, strict=True)
        self._filled = {name for name, column in columns if column.null_count < len(column)}
        self.columns: dict[str, Any] = {}
        """Those that were asked for, as series, and what rules add to them."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __contains__(self, name: str) -> bool:
        """Whether a column has a value in any row."""
        return name in self._filled

    def __getitem__(self, name: str) -> Any:
        """A column as a series: numbers and truths as float64, texts as categories."""
        if name not in self.columns:
            column = self.table[name] if name in self else None
            if column is None:
                empty = pd.Categorical([None] * len(self)) if name in _TEXTS else np.full(len(self), np.nan)
                self.columns[name] = pd.Series(empty)
            elif name in _TEXTS:
                self.columns[name] = column.to_pandas()
            else:
                self.columns[name] = pd.Series(column.cast(pa.float64(), safe=False).to_numpy())
        return self.columns[name]

    def frame(self, names: Iterable[str]) -> pd.DataFrame:
        """Several columns."""
        return pd.DataFrame({name: self[name] for name in names})

    def sum(self, names: Iterable[str]) -> Any:
        """The sum of several columns, where null counts as nothing."""
        there = [np.nan_to_num(self[name].to_numpy()) for name in names if name in self]
        return pd.Series(np.sum(there, axis=0) if there else np.zeros(len(self)))

    def quote(self, name: str, row: int) -> str:
        """Show what a column holds in a row; of a pattern of names, such as ``host_*_ns``, the sum."""
        if "*" in name:
            return f"{self.sum(matching(self.table.column_names, name))[row]:.12g}"
        return quote(self.table[name][row].as_py()) if name in self.table.column_names else "nothing"


@dataclass(frozen=True, slots=True)
class Opened:
    """A table whose structure is sound."""

    where: str
    """Its name, for findings."""
    table: str
    """Of ``columns.TABLES``."""
    manifest: RunManifest
    fields: dict[str, Any]
    """The manifest as it stands in the file."""
    count: int
    """Rows."""
    file: pq.ParquetFile

    def rows(self) -> Iterator[Rows]:
        """Decode its rows, some at a time; texts as dictionaries, so that one long text cannot fill the memory."""
        held: list[pa.RecordBatch] = []
        first, waiting = 0, 0
        try:
            for batch in self.file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                batch.validate(full=True)
                held.append(batch)
                waiting += batch.num_rows
                if waiting >= BATCH_ROWS:
                    yield self._rows(held, first)
                    held, first, waiting = [], first + waiting, 0
        except (OSError, ValueError, pa.ArrowException) as error:
            if isinstance(error, MemoryError):
                raise
            raise DECODES.refused(self.where, _first_line(error), "rows as they were written") from error
        if first + waiting != self.count:
            got = f"{self.count - first - waiting} rows too few"
            raise DECODES.refused(self.where, got, f"{self.count}, as it says")
        if held:
            yield self._rows(held, first)

    def _rows(self, held: list[pa.RecordBatch], first: int) -> Rows:
        return Rows(self.table, pa.Table.from_batches(held), self.manifest, first)


def read(path: Path, most: caps.Cap = caps.FILE_BYTES) -> bytes:
    """Read a file that must be a plain one, no link, and of so many bytes at most.

    Raises:
        Refused: it is no plain file, too large, or cannot be read.
    """
    name = quote(path.name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise PLAIN_FILE.refused(name, "a folder or a device", "a plain file")
            most.check(about.st_size, name)
            data = file.read(min(most.most, about.st_size) + 1)
    except OSError as error:
        got = "a link" if error.errno == errno.ELOOP else (error.strerror or "no file").lower()
        raise PLAIN_FILE.refused(name, got, "a plain file that can be read") from error
    most.check(len(data), name)
    return data


def open_table(data: bytes, table: str, where: str) -> Opened:
    """Open a table.

    Raises:
        Refused: it is no such table.
    """
    size = _footer_bytes(data, where)
    try:
        plain = pq.ParquetFile(pa.BufferReader(data), **_OPTIONS)
        metadata = plain.metadata
        caps.COLUMNS.check(metadata.num_columns, where)
        caps.ROW_GROUPS.check(metadata.num_row_groups, where)
        caps.ROWS_OF[table].check(metadata.num_rows, where)
        there = _check_columns(plain.schema_arrow, table, where)
        chunks = _check_chunks(metadata, len(data) - _TAIL - size, where)
        texts = [name for name in there if _types(table)[name] == pa.string()]
        file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=texts, **_OPTIONS)
        text = (metadata.metadata or {}).get(MANIFEST_KEY, b"")
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, MemoryError):
            raise
        raise PARQUET.refused(where, _first_line(error), "a parquet file as feedrate writes it") from error
    if text != (plain.schema_arrow.metadata or {}).get(MANIFEST_KEY, b""):  # Arrow keeps a copy of its own
        raise PARQUET.refused(where, "two manifests", "the same in its metadata and in Arrow's schema")
    fields, manifest = read_manifest(text, where)
    if not all(_CHECKED_PAGE.match(data, begin) for begin in chunks):
        raise CHECKSUMS.refused(where, "a page without a checksum", "pages as feedrate writes them")
    if missing := [column.name for column in TABLES[table] if column.name not in there]:
        raise COLUMN.refused(f"{where} column '{missing[0]}'", "no such column", "every column of its schema version")
    return Opened(where, table, manifest, fields, metadata.num_rows, file)


def _footer_bytes(data: bytes, where: str) -> int:
    if data[:4] != MAGIC or data[-4:] != MAGIC or len(data) < len(MAGIC) + _TAIL:
        kind = "an encrypted file" if data[-4:] == b"PARE" else f"{quote(data[:4])} … {quote(data[-4:])}"
        raise PARQUET.refused(where, kind, "a parquet file: PAR1 … PAR1")
    size = int.from_bytes(data[-_TAIL:-4], "little")
    caps.FOOTER_BYTES.check(size, where)
    if size > len(data) - len(MAGIC) - _TAIL:
        raise PARQUET.refused(where, f"a footer of {size} bytes in a file of {len(data)}", "one that fits")
    return size


def _check_columns(schema: pa.Schema, table: str, where: str) -> set[str]:
    """Name the columns of a file, all of which must be of the dictionary and of their type."""
    types = _types(table)
    for field in schema:
        if types.get(field.name) != field.type or len(schema.get_all_field_indices(field.name)) > 1:
            expected = "columns of the data dictionary, once each and of their type"
            raise COLUMN.refused(f"{where} column {quote(field.name)}", quote(str(field.type)), expected)
    return set(schema.names)


@cache
def _types(table: str) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in arrow_schema(TABLES[table])}


def _check_chunks(metadata: pq.FileMetaData, end: int, where: str) -> list[int]:
    """Hold what the footer says of every column of every row group against the file; say where they begin."""
    places, decoded, rows = [], 0, 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        rows += group.num_rows
        for column in map(group.column, range(metadata.num_columns)):
            size, unpacked = column.total_compressed_size, column.total_uncompressed_size
            if column.num_values != group.num_rows or column.file_path or min(size, unpacked, group.num_rows) < 0:
                got = f"{column.num_values} values, {size} bytes, {unpacked} when decompressed"
                expected = f"{group.num_rows} values, as many as rows, here"
                raise CHUNKS.refused(f"{where} column {quote(column.path_in_schema)}", got, expected)
            data, dictionary = column.data_page_offset, column.dictionary_page_offset
            begin = min(data, dictionary or data)
            places.append((begin, begin + size))
            decoded += unpacked
    caps.DECODED_BYTES.check(decoded, where)
    edges = [len(MAGIC), *chain.from_iterable(sorted(places)), end]
    if edges != sorted(edges) or rows != metadata.num_rows:
        got = f"{rows} rows in columns that overlap or lie outside of it, or too few"
        raise CHUNKS.refused(
            where, got, f"{metadata.num_rows} rows, apart from each other between {edges[0]} and {end}"
        )
    return [begin for begin, _ in places] if rows else []


def _first_line(error: BaseException) -> str:
    return quote((str(error).splitlines() or [type(error).__name__])[0])
