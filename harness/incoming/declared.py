"""What a parquet file declares of its size, held against the caps before anything is decompressed.

The footer says where every column chunk lies and how large it is; the pages' own headers say how much memory their
decompression takes, and a library believes them. So the chunks must lie within the file and apart from each other, and
every page header is read and must add up to what the footer says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.incoming import compact
from harness.incoming.caps import DECODED_BYTES, PAGE_BYTES, PAGES, Cap
from harness.incoming.findings import Refused, Rule, shown

if TYPE_CHECKING:
    import pyarrow.parquet as pq

CODECS = ("ZSTD", "SNAPPY", "UNCOMPRESSED")
CHUNKS = Rule(
    "chunks", "Every column chunk lies within the file, apart from all others, and holds a value a row of its group."
)
CODEC = Rule("codec", f"Columns are compressed with {', '.join(CODECS[:-1])} or not at all.")
PAGE_HEADERS = Rule("page_headers", "The headers of a chunk's pages add up to what the footer says of the chunk.")
RULES = (CHUNKS, CODEC, PAGE_HEADERS)

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_COUNTS = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""Kind of page to the field of its header that counts its values."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    where: str
    begin: int
    end: int
    decoded: int
    values: int


def check(data: bytes, metadata: pq.FileMetaData, end: int, name: str) -> None:
    """Hold what a file declares of its chunks and pages against the caps and against each other.

    Args:
        data: the whole file.
        metadata: its footer.
        end: where its footer begins.
        name: of the file, for findings.

    Raises:
        Refused: something does not add up, or is more than is accepted.
    """
    chunks = [
        _chunk(metadata, group, column, f"{name} row group {group}")
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    within(DECODED_BYTES, sum(chunk.decoded for chunk in chunks), name)
    last = len(b"PAR1")
    for chunk in sorted(chunks, key=lambda chunk: (chunk.begin, chunk.end)):
        if not last <= chunk.begin <= chunk.end <= end:
            raise Refused(
                CHUNKS.name, chunk.where, f"bytes {chunk.begin} to {chunk.end}", f"a place between {last} and {end}"
            )
        last = chunk.end
    left = PAGES.most
    for chunk in chunks:
        left -= _pages(data, chunk, left)


def within(cap: Cap, found: int, where: str) -> None:
    """Refuse what is more than a cap accepts.

    Raises:
        Refused: it is.
    """
    if cap.exceeded(found):
        raise Refused(cap.name, where, f"{found:,} {cap.unit}", str(cap))


def _chunk(metadata: pq.FileMetaData, group: int, column: int, where: str) -> _Chunk:
    rows = metadata.row_group(group)
    chunk = rows.column(column)
    where = f"{where} column {shown(chunk.path_in_schema)}"
    if chunk.compression not in CODECS:
        raise Refused(CODEC.name, where, shown(chunk.compression), " or ".join(CODECS))
    if chunk.num_values != rows.num_rows or chunk.file_path:
        raise Refused(CHUNKS.name, where, f"{chunk.num_values} values", f"{rows.num_rows}, as many as rows, here")
    begin = chunk.data_page_offset
    if (dictionary := chunk.dictionary_page_offset) is not None and 0 < dictionary < begin:
        begin = dictionary
    size, decoded = chunk.total_compressed_size, chunk.total_uncompressed_size
    if size < 0 or decoded < 0:
        raise Refused(CHUNKS.name, where, f"{size} bytes, {decoded} when decompressed", "sizes of zero or more")
    return _Chunk(where, begin, begin + size, decoded, chunk.num_values)


def _pages(data: bytes, chunk: _Chunk, left: int) -> int:
    """Walk along the pages of a chunk and return how many there are."""
    reader = compact.Reader(data, chunk.begin)
    pages = decoded = values = 0
    while reader.at < chunk.end:
        begin, reader.left = reader.at, 256
        pages += 1
        within(PAGES, pages if pages <= left else PAGES.most + 1, chunk.where)
        size, whole, count = _header(reader, chunk.where)
        within(PAGE_BYTES, whole, chunk.where)
        decoded += whole + reader.at - begin
        values += count
        reader.at += size
    if reader.at != chunk.end or values != chunk.values or decoded > chunk.decoded:
        raise Refused(
            PAGE_HEADERS.name,
            chunk.where,
            f"pages of {values} values to byte {reader.at}, {decoded} bytes when decompressed",
            f"{chunk.values} values to byte {chunk.end}, {chunk.decoded} bytes",
        )
    return pages


def _header(reader: compact.Reader, where: str) -> tuple[int, int, int]:
    """Read a page's header: its size, its size when decompressed, and its values (of a dictionary: none)."""
    try:
        fields = reader.struct()
        kind, whole, size = (fields[number][1] for number in (1, 2, 3))
        count = fields[_COUNTS[kind]][1][1][1]
    except (compact.Malformed, KeyError, TypeError, IndexError) as error:
        raise Refused(PAGE_HEADERS.name, where, f"a page header that {_fault(error)}", "one as parquet has") from error
    if not all(isinstance(number, int) and number >= 0 for number in (whole, size, count)):
        raise Refused(PAGE_HEADERS.name, where, f"a page of {shown(size)} bytes", "sizes of zero or more")
    return size, whole, 0 if kind == _DICTIONARY else count


def _fault(error: Exception) -> str:
    return str(error) if isinstance(error, compact.Malformed) else "lacks a field"
