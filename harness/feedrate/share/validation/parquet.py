"""A table of others, opened and decoded: its rows as arrays that rules look at.

In this order: size, magic numbers, footer, rows and columns, names and types of the columns, where the footer places
them, the manifest. The file is read into memory once, so that nobody can change it between two looks. What the footer
hides, such as a page that unpacks to gigabytes, meets the limits of the process that decodes (``guard``).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feedrate.schema.axes import Axis, Value
from feedrate.schema.columns import TABLES
from feedrate.share.validation import caps
from feedrate.share.validation.findings import Rule, quote
from feedrate.share.validation.manifest import read_manifest
from feedrate.store import migration
from feedrate.store.manifest import RunManifest
from feedrate.store.runs import CHECKED

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MAGIC = b"PAR1"
CODECS = ("ZSTD", "SNAPPY", "UNCOMPRESSED")
BATCH_ROWS = 65_536
"""Rows that are decoded at a time."""
NULL = -1
"""Code of a text that is null."""
_TAIL = 8
"""Bytes behind the footer: its length and the magic number."""
_CHECKED_PAGE = re.compile(rb"(?:\x15[\x80-\xff]{0,9}[\x00-\x7f]){4}")
"""How the header of a page with a checksum begins: four numbers (0x15), each in as many bytes as it takes."""
CHECKSUMS_SINCE = 3
"""Schema version from which every page carries a checksum of its bytes (CRC-32)."""
_OPTIONS: dict[str, Any] = {
    **CHECKED,
    "pre_buffer": False,
    "arrow_extensions_enabled": False,
    "thrift_string_size_limit": caps.FOOTER_BYTES.most,
    "thrift_container_size_limit": 65_536,
}

PLAIN_FILE = Rule("plain_file", "It is a plain file, neither a link nor a device, and can be read.")
PARQUET = Rule("parquet", "It is a parquet file from its first byte to its last, and not encrypted.")
COLUMN = Rule("column", "Its columns are those of the data dictionary, once each, flat and of the type stated there.")
DECODES = Rule("decodes", "Every value of it can be decoded, no page fails its checksum, and texts are UTF-8.")
CHECKSUMS = Rule("checksums", f"From schema version {CHECKSUMS_SINCE} on its pages carry checksums.")
CHUNKS = Rule(
    "chunks", "Every column chunk lies within the file, apart from all others, and holds a value a row of its group."
)
CODEC = Rule("codec", f"Columns are compressed with {', '.join(CODECS[:-1])} or not at all.")
RULES = (PLAIN_FILE, PARQUET, COLUMN, DECODES, CHUNKS, CODEC, CHECKSUMS)


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

    def matches(self, pattern: str) -> Mask:
        """Say of every row whether its text is null or matches a regular expression (RE2) from end to end."""
        return self.spread(pc.match_substring_regex(self.words, f"^(?:{pattern})$"), null=True)

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
    """Some rows of one table of a run; texts are dictionaries, and a missing column counts as null throughout."""

    def __init__(self, name: str, table: pa.Table, run: RunManifest, first: int = 0) -> None:
        self.name = name
        self.table = table.unify_dictionaries().combine_chunks()
        self.run = run
        self.first = first
        """The number in its file of the first row."""
        self._names = set(table.column_names)
        self._numbers: dict[str, Floats] = {}
        self._texts: dict[str, Texts] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __contains__(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self._names

    def column(self, name: str) -> Any:
        """A column in one piece."""
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks else column.combine_chunks()

    def holds(self, name: str) -> bool:
        """Whether a column has a value in any row."""
        return name in self and self.column(name).null_count < len(self)

    def valid(self, name: str) -> Mask:
        """Say of every row whether a column is not null."""
        if name not in self:
            return np.zeros(len(self), dtype=np.bool_)
        mask: Mask = pc.is_valid(self.column(name)).to_numpy(zero_copy_only=False)
        return mask

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
            if name in self:
                column = self.column(name)
                codes = pc.fill_null(column.indices, NULL).to_numpy(zero_copy_only=False).astype(np.int64)
                self._texts[name] = Texts(codes, column.dictionary)
            else:
                self._texts[name] = Texts(np.full(len(self), NULL), pa.array([], pa.string()))
        return self._texts[name]

    def axis(self, axis: Axis, row: int) -> Value | None:
        """The value of an axis in a row; None where it does not apply."""
        if axis.type is str:
            return self.text(axis.name).text(row)
        number = self.number(axis.name)[row]
        return None if np.isnan(number) else axis.type(number)

    def quote(self, name: str, row: int) -> str:
        """Show what a column holds in a row."""
        return quote(self.table.column(name)[row].as_py()) if name in self else "nothing"


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
        table = migration.current_table(pa.Table.from_batches(held), self.fields["schema_version"])
        return Rows(self.table, table, self.manifest, first)


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
        _check_counts(metadata, caps.ROWS_OF[table], where)
        there = _check_columns(plain.schema_arrow, table, where)
        _check_chunks(metadata, len(data) - _TAIL - size, where)
        texts = [name for name in there if _types(table)[name] == pa.string()]
        file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=texts, **_OPTIONS)
        text = (metadata.metadata or {}).get(migration.MANIFEST_KEY, b"")
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, MemoryError):
            raise
        raise PARQUET.refused(where, _first_line(error), "a parquet file as feedrate writes it") from error
    fields, manifest = read_manifest(text, where)
    if fields["schema_version"] >= CHECKSUMS_SINCE:
        _check_checksums(data, metadata, where)
    version = fields["schema_version"]
    current = {migration.current_column(name, version) for name in there}
    if len(current) < len(there) or not current <= _types(table).keys() - {migration.RENAMED[0]}:
        raise COLUMN.refused(where, f"column {quote(migration.RENAMED[0])}", "columns of its schema version alone")
    lacking = (column.name for column in TABLES[table] if column.name not in current)
    if missing := migration.missing(lacking, version):
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


def _check_counts(metadata: pq.FileMetaData, rows: caps.Cap, where: str) -> None:
    """Hold rows, columns and row groups against the caps, and the rows of the groups against those of the file."""
    caps.COLUMNS.check(metadata.num_columns, where)
    caps.ROW_GROUPS.check(metadata.num_row_groups, where)
    rows.check(metadata.num_rows, where)
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(groups, default=0) < 0 or sum(groups) != metadata.num_rows or not metadata.num_columns:
        got = f"{metadata.num_rows} rows in groups of {sum(groups)}"
        raise PARQUET.refused(where, got, "groups that add up, and columns")


def _check_columns(schema: pa.Schema, table: str, where: str) -> set[str]:
    """Name the columns of a file, all of which must be known and of their type."""
    types = _types(table)
    seen: set[str] = set()
    for field in schema:
        place = f"{where} column {quote(field.name)}"
        if field.name not in types:
            raise COLUMN.refused(place, "a column that is not known", "columns of the data dictionary alone")
        if field.name in seen:
            raise COLUMN.refused(place, "a column that is there twice", "each once")
        if field.type != types[field.name]:
            raise COLUMN.refused(place, quote(str(field.type)), str(types[field.name]))
        seen.add(field.name)
    return seen


@cache
def _types(table: str) -> dict[str, pa.DataType]:
    types = {field.name: field.type for field in migration.arrow_schema(TABLES[table])}
    earlier, now, _ = migration.RENAMED
    return types | ({earlier: types[now]} if now in types else {})


def _check_chunks(metadata: pq.FileMetaData, end: int, where: str) -> None:
    """Hold what the footer says of every column of every row group against the file and the caps."""
    places, decoded = [], 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(metadata.num_columns)):
            place = f"{where} column {quote(column.path_in_schema)}"
            if column.compression not in CODECS:
                raise CODEC.refused(place, quote(column.compression), " or ".join(CODECS))
            size, unpacked = column.total_compressed_size, column.total_uncompressed_size
            if column.num_values != group.num_rows or column.file_path or min(size, unpacked) < 0:
                got = f"{column.num_values} values, {size} bytes, {unpacked} when decompressed"
                raise CHUNKS.refused(place, got, f"{group.num_rows} values, as many as rows, here")
            begin = _begin(column)
            places.append((begin, begin + size))
            decoded += unpacked
    caps.DECODED_BYTES.check(decoded, where)
    edges = [len(MAGIC), *chain.from_iterable(sorted(places)), end]
    if edges != sorted(edges):
        got = "columns that overlap or lie outside of it"
        raise CHUNKS.refused(where, got, f"places apart from each other, between {edges[0]} and {end}")


def _begin(column: pq.ColumnChunkMetaData) -> int:
    data, dictionary = column.data_page_offset, column.dictionary_page_offset
    return int(min(data, dictionary or data))


def _check_checksums(data: bytes, metadata: pq.FileMetaData, where: str) -> None:
    """Look for a checksum in the first page of every column of every row group.

    A page's header begins with its kind, its two sizes and, where there is one, its checksum, as fields 1 to 4 of a
    Thrift struct in the compact protocol. Source: ``parquet.thrift``, PageHeader.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(metadata.num_columns) if group.num_rows else ()):
            header = _CHECKED_PAGE.match(data, _begin(column))
            if not header:
                place = f"{where} column {quote(column.path_in_schema)}"
                raise CHECKSUMS.refused(place, "a page without a checksum", "pages as feedrate writes them")


def _first_line(error: BaseException) -> str:
    return quote((str(error).splitlines() or [type(error).__name__])[0])
