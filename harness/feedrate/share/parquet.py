"""A table of others: bytes whose structure is held against the schema, decoded to frames that rules look at.

The file is read into memory once, so that nobody can change it between two looks. What the footer hides, such as a page
that unpacks to gigabytes, meets the limits of the process that decodes (``validator``).

The manifest is a JSON text that may be anything, until ``RunManifest`` writes it again just as it stands in the file:
every field, of its type, none besides, and the machine's id as it follows from its facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic_core import from_json

from feedrate.schema.axes import FREE_NAME
from feedrate.schema.columns import TABLES
from feedrate.schema.errors import InputError
from feedrate.schema.redaction import INVISIBLE
from feedrate.share import findings
from feedrate.share.findings import Cap, Refused, quote
from feedrate.store import manifest as stored
from feedrate.store.manifest import RunManifest
from feedrate.store.runs import CHECKED
from feedrate.store.tables import MANIFEST_KEY, arrow_schema

MAGIC = b"PAR1"
BATCH_ROWS = 16_384
"""Rows that are decoded at a time."""
_CHECKED_PAGE = re.compile(rb"(?:\x15[\x80-\xff]{0,9}[\x00-\x7f]){4}")
"""How the header of a page with a checksum begins: its kind, two sizes and the checksum, fields 1 to 4 of a struct of
numbers (0x15) in Thrift's compact protocol. Source: ``parquet.thrift``, PageHeader."""
_OPTIONS: dict[str, Any] = {
    **CHECKED,
    "pre_buffer": False,
    "arrow_extensions_enabled": False,
    "thrift_string_size_limit": findings.FOOTER_BYTES.most,
    "thrift_container_size_limit": 65_536,
}
_ERRORS = (OSError, ValueError, pa.ArrowException)

EXACT = 2.0**53
"""Whole numbers up to here are exact as float64, and in JavaScript."""
MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|\+00:00)"
"""A time in UTC."""
RUN_ID = "[0-9]{8}T[0-9]{6}Z-[0-9a-z]{4}"
"""Date and time of its beginning, and four characters that tell it from others of that second."""
NAME = "[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}"
"""A word that is no path, no markup and no option, and from which no shell expands anything."""
KEY = "[a-z0-9][a-z0-9_-]{0,63}"
_PATH = re.compile(rf"{KEY}(?:\.{KEY})*")
_LINE = f"[^{INVISIBLE}]{{0,{findings.TEXT_CHARACTERS.most}}}"
_VALUE = r"(?:[\w.+,-]{1,100}|'[\w.+,@ -]{1,100}')"
"""What a shell takes as it stands: no expansion, no second command."""
_COMMAND = (
    rf"feedrate sweep(?: --(?:profile|suite|budget|matrix|data|data-root) {_VALUE}| --tune)*"
    r"(?: --on (?:slurm|local) --nodes [1-9][0-9]{0,5} --together)?|"
    rf"feedrate (?:run|tune) -- (?a:{FREE_NAME.pattern})"
)
_FORMS = {
    "run_id|cluster.sweep": RUN_ID,
    "started_at|ended_at": MOMENT,
    "device": "cpu|cuda",
    "command": _COMMAND,
    r"machine\.node": "[0-9a-f]{8}",
    r"(?:machine|software|runtime|suites|untestable|substitutions)\b.*|.*\.(?:notes\.\d+|reason)|profile": _LINE,
    ".*": NAME,
}
"""Pattern of fields to the pattern of their texts; the first that fits counts."""
_WORDS = {_LINE: "one short line of plain text", _COMMAND: "feedrate sweep, run or tune as runs record it"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose structure is sound, by the name that findings give it."""

    where: str
    manifest: RunManifest
    rows: int
    file: pq.ParquetFile

    def frames(self) -> Iterator[pd.DataFrame]:
        """Decode the rows by and by: numbers and truths as float64 (NaN is null), texts as categories.

        Raises:
            Refused: a page fails its checksum, or cannot be decoded.
        """
        first = 0
        try:
            for batch in self.file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                batch.validate(full=True)
                yield self._frame(pa.Table.from_batches([batch]), first)
                first += batch.num_rows
        except _ERRORS as error:
            raise _refused(error, self.where) from error
        if first != self.rows:
            raise Refused(self.where, f"{first} rows", f"{self.rows}, as it says")

    def frame(self, columns: Sequence[str]) -> pd.DataFrame:
        """Decode some columns of all rows, likewise, after ``frames`` has seen that they can be."""
        return self._frame(self.file.read(list(columns), use_threads=False).unify_dictionaries(), 0)

    def _frame(self, table: pa.Table, first: int) -> pd.DataFrame:
        columns: dict[str, Any] = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_dictionary(column.type):
                columns[name] = column.to_pandas().array
                continue
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                raise Refused(f"{self.where} column {name}", "not a number", "numbers")
            columns[name] = column.cast(pa.float64(), safe=False).to_numpy()
        return pd.DataFrame(columns, index=pd.RangeIndex(first, first + len(table)))


def read(path: Path, most: Cap = findings.FILE_BYTES) -> bytes:
    """Read a file that must be a plain one, no link, and of so many bytes at most.

    Raises:
        Refused: it is not.
    """
    if path.is_symlink() or not path.is_file():
        raise Refused(quote(path.name), "a link, a folder, a device or nothing", "a plain file")
    most.check(path.stat().st_size, quote(path.name))
    return path.read_bytes()


def open_table(path: Path, table: str) -> Table:
    """Open the file of a table of ``columns.TABLES``; one that is no such table is refused."""
    where, data = f"{table}.parquet", read(path)
    if data[:4] != MAGIC or data[-4:] != MAGIC:
        raise Refused(where, f"bytes {data[:4].hex(' ')} … {data[-4:].hex(' ')}", "a parquet file: PAR1 … PAR1")
    size, expected = int.from_bytes(data[-8:-4], "little"), arrow_schema(TABLES[table])
    findings.FOOTER_BYTES.check(size, where)
    try:
        plain = pq.ParquetFile(pa.BufferReader(data), **_OPTIONS)
        metadata, schema = plain.metadata, plain.schema_arrow
        findings.COLUMNS.check(metadata.num_columns, where)
        findings.ROW_GROUPS.check(metadata.num_row_groups, where)
        (findings.ROWS if table == "trials" else findings.TRACE_ROWS).check(metadata.num_rows, where)
        begins = _begins(metadata, len(data) - 8 - size, where)
    except _ERRORS as error:
        raise _refused(error, where) from error
    text = (metadata.metadata or {}).get(MANIFEST_KEY, b"")
    if text != (schema.metadata or {}).get(MANIFEST_KEY, b""):  # Arrow keeps a copy of its own
        raise Refused(where, "two manifests", "the same in its metadata and in Arrow's schema")
    manifest = read_manifest(text, where)
    if not schema.equals(expected):
        got, right = ({f"{field.name} ({field.type})" for field in fields} for fields in (schema, expected))
        other = [quote(name) for name in sorted(got - right)] + [f"no {name}" for name in sorted(right - got)]
        raise Refused(f"{where} columns", (other or ["another order"])[0], "the data dictionary's, in its order")
    if not all(_CHECKED_PAGE.match(data, begin) for begin in begins):
        raise Refused(where, "a page without a checksum", "pages with checksums")
    texts = [field.name for field in expected if field.type == pa.string()]
    file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=texts, **_OPTIONS)
    return Table(where, manifest, metadata.num_rows, file)


def _begins(metadata: pq.FileMetaData, end: int, where: str) -> list[int]:
    """Say where the chunks of all columns begin: apart from each other, within the file, with a value for every row."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    chunks = [(group.num_rows, group.column(at)) for group in groups for at in range(metadata.num_columns)]
    begins = [min(filter(None, (chunk.data_page_offset, chunk.dictionary_page_offset))) for _, chunk in chunks]
    spans = [(begin, begin + chunk.total_compressed_size) for begin, (_, chunk) in zip(begins, chunks, strict=True)]
    edges = [len(MAGIC), *chain.from_iterable(sorted(spans)), end]
    full = all(chunk.num_values == rows >= 0 and not chunk.file_path for rows, chunk in chunks)
    if not full or edges != sorted(edges) or sum(group.num_rows for group in groups) != metadata.num_rows:
        raise Refused(where, "a footer that contradicts the file", "columns side by side with a value for every row")
    findings.DECODED_BYTES.check(sum(chunk.total_uncompressed_size for _, chunk in chunks), where)
    return begins if metadata.num_rows else []


def _refused(error: Exception, where: str) -> Exception:
    """What is raised in place of a reader's error; a lack of memory, which Arrow derives from it, stays one."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return error if isinstance(error, MemoryError) else Refused(where, quote(first), "a file as feedrate writes it")


def read_manifest(text: bytes, where: str) -> RunManifest:
    """Read a manifest of others; refused are another version, and what no run says of itself."""
    findings.MANIFEST_BYTES.check(len(text), where)
    try:
        return _manifest(text)
    except Refused as error:
        field, *finding = error.args
        raise Refused(f"{where} {field}", *finding) from error


@lru_cache(maxsize=1)  # all tables of a run hold the same
def _manifest(text: bytes) -> RunManifest:
    where, expected = "manifest", "a manifest as feedrate writes it"
    try:
        fields = from_json(text, allow_inf_nan=False)
        manifest = stored.read_manifest(text, where)
    except (ValueError, InputError) as error:
        problem, _, advice = str(error).removeprefix(f"{where}: ").rpartition(". ")
        got = quote(problem or advice, 400)[1:-1] if text else "none in its metadata"
        raise Refused(where, got, expected, advice if problem and text else findings.UNCHANGED) from error
    written = manifest.model_dump(mode="json")
    if _canonical(written) != _canonical(fields):
        right, wrong = dict(leaves(written)), dict(leaves(fields))
        differing = (path for path in right | wrong if _canonical(right.get(path)) != _canonical(wrong.get(path)))
        path = next(differing, "")
        raise Refused(f"{where}.{quote(path)[1:-1]}", quote(wrong.get(path)), quote(right.get(path)))
    check_fields(fields, where)
    return manifest


def _canonical(value: Any) -> str:
    """A text that tells 1 from 1.0 and from true."""
    return json.dumps(value, sort_keys=True)


def check_fields(fields: dict[str, Any], where: str) -> None:
    """Hold texts, numbers and the names of fields against what they are for.

    Raises:
        Refused: one is something else.
    """
    for path, value in leaves(fields):
        if not _PATH.fullmatch(path):
            raise Refused(where, quote(path), f"names of fields such as {KEY}")
        if isinstance(value, str):
            form = next(form for field, form in _FORMS.items() if re.fullmatch(field, path))
            if not re.fullmatch(form, value):
                raise Refused(f"{where}.{path}", quote(value), _WORDS.get(form, f"a text such as {form}"))
        elif isinstance(value, int | float) and not 0 <= value <= EXACT:
            raise Refused(f"{where}.{path}", quote(value), f"0 to {EXACT:g}")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of JSON that holds no other, with its path."""
    pairs = value.items() if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else ()
    for name, inner in pairs:
        yield from leaves(inner, f"{path}.{name}".lstrip("."))
    if not pairs:
        yield path, value
