"""A table of others, opened as far as its structure goes: nothing is decoded before the caps hold.

In this order: size, magic numbers, length of the footer, footer, rows and columns, names and types of the columns,
chunks and pages, the manifest. The file is read into memory once, so that nobody can change it between two looks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedrate.schema.columns import TABLES
from feedrate.share.validation import caps, pages
from feedrate.share.validation.findings import Rule, quote
from feedrate.share.validation.manifest import read_manifest
from feedrate.share.validation.rows import Rows
from feedrate.store import migration
from feedrate.store.manifest import RunManifest

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"PAR1"
BATCH_ROWS = 65_536
"""Rows that are decoded at a time."""
_TAIL = 8
"""Bytes behind the footer: its length and the magic number."""
_MOST_IN_A_LIST = 65_536
"""Elements of one list in a footer."""

PLAIN_FILE = Rule("plain_file", "It is a plain file, neither a link nor a device, and can be read.")
PARQUET = Rule("parquet", "It is a parquet file from its first byte to its last, and not encrypted.")
COLUMN = Rule("column", "Its columns are those of the data dictionary, once each, flat and of the type stated there.")
DECODES = Rule("decodes", "Every value of it can be decoded, and texts are UTF-8.")
RULES = (PLAIN_FILE, PARQUET, COLUMN, DECODES)


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
    file: Any

    def rows(self) -> Iterator[Rows]:
        """Decode its rows, some at a time; texts as dictionaries, so that one long text cannot fill the memory."""
        import pyarrow as pa

        held: list[pa.RecordBatch] = []
        first, waiting = 0, 0
        try:
            for batch in self.file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                batch.validate(full=True)
                held.append(batch)
                waiting += batch.num_rows
                if waiting >= BATCH_ROWS:
                    yield Rows(self.table, pa.Table.from_batches(held), [self.manifest], first=first)
                    held, first, waiting = [], first + waiting, 0
        except (OSError, ValueError, pa.ArrowException) as error:
            if isinstance(error, MemoryError):
                raise
            raise DECODES.refused(self.where, _first_line(error), "rows as they were written") from error
        if first + waiting != self.count:
            got = f"{self.count - first - waiting} rows too few"
            raise DECODES.refused(self.where, got, f"{self.count}, as it says")
        if held:
            yield Rows(self.table, pa.Table.from_batches(held), [self.manifest], first=first)

    def decoded(self) -> pa.Table:
        """Decode all of its rows at once."""
        import pyarrow as pa

        return pa.concat_tables([rows.table for rows in self.rows()] or [self.file.schema_arrow.empty_table()])


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
    """Open a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = _footer_bytes(data, where)
    options: dict[str, Any] = {
        "pre_buffer": False,
        "arrow_extensions_enabled": False,
        "thrift_string_size_limit": caps.FOOTER_BYTES.most,
        "thrift_container_size_limit": _MOST_IN_A_LIST,
    }
    try:
        plain = pq.ParquetFile(pa.BufferReader(data), **options)
        metadata = plain.metadata
        _check_counts(metadata, caps.ROWS_OF[table], where)
        there = _check_columns(plain.schema_arrow, table, where)
        pages.check(data, metadata, len(data) - _TAIL - size, where)
        texts = [column.name for column in TABLES[table] if column.dtype == "string" and column.name in there]
        file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=texts, **options)
        text = (metadata.metadata or {}).get(migration.MANIFEST_KEY, b"")
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, MemoryError):
            raise
        raise PARQUET.refused(where, _first_line(error), "a parquet file as feedrate writes it") from error
    fields, manifest = read_manifest(text, where)
    missing = [column.name for column in TABLES[table] if column.name not in there]
    if missing and fields["schema_version"] > 1:
        expected = "every column of its schema version"
        raise COLUMN.refused(f"{where} column '{missing[0]}'", "no such column", expected)
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


def _check_counts(metadata: Any, rows: caps.Cap, where: str) -> None:
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
    return {field.name: field.type for field in migration.arrow_schema(TABLES[table])}


def _first_line(error: BaseException) -> str:
    return quote((str(error).splitlines() or [type(error).__name__])[0])
