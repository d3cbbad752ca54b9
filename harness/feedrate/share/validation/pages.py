"""What a parquet file declares of its size, held against the caps before anything is decompressed.

The footer says where every column chunk lies and how large it is; the pages' own headers say how much memory their
decompression takes, and a library believes them. So the chunks must lie within the file and apart from each other, and
every page header is read and must add up to what the footer says.

A run has hundreds of pages and a site thousands of runs. Nearly all headers have the few fields that Arrow writes, in
its order: one pattern reads those in a tenth of the time. What it does not match is read field by field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from feedrate.share.validation.caps import DECODED_BYTES, PAGE_BYTES, PAGES
from feedrate.share.validation.findings import Rule, quote
from feedrate.share.validation.thrift import Malformed, Reader

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
_MOST_IN_A_HEADER = 256
"""Values of one header."""
_COUNTS = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""Kind of page to the field of its header that counts its values."""

_NUMBER = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
_TEXT = b"(?:%s)" % b"|".join(re.escape(bytes([size])) + b".{%d}" % size for size in range(64))
_STATISTIC = rb"(?:[\x18\x28\x38\x48\x58\x68]%s|[\x16\x26\x36\x46]%s|[\x11\x12\x21\x22])" % (_TEXT, _NUMBER)
_COMMON = re.compile(
    rb"\x15(?:\x00\x15(%(n)s)\x15(%(n)s)\x2c\x15(%(n)s)(?:\x15%(n)s){3}(?:\x1c%(s)s{0,8}\x00)?"
    rb"|\x04\x15(%(n)s)\x15(%(n)s)\x4c\x15(%(n)s)\x15%(n)s[\x11\x12]?)\x00\x00" % {b"n": _NUMBER, b"s": _STATISTIC},
    re.DOTALL,
)
"""A page's header as Arrow writes it, in Thrift's compact protocol: a byte says how far the field's number is from the
last one's, and its kind; then comes its value. Either kind 0, sizes, a struct (values, three encodings, statistics), or
kind 2, sizes, a struct (values, encoding, sorted). Statistics are texts, counts and flags."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column of a row group, as the footer declares it."""

    where: str
    """Names it in findings."""
    begin: int
    end: int
    decoded: int
    """Bytes when it is decompressed."""
    values: int


def check(data: bytes, metadata: pq.FileMetaData, end: int, name: str) -> None:
    """Hold what a file declares of its chunks and pages against the caps and against each other."""
    chunks = declared_chunks(metadata, name)
    DECODED_BYTES.check(sum(chunk.decoded for chunk in chunks), name)
    last = len(b"PAR1")
    for chunk in sorted(chunks, key=lambda chunk: (chunk.begin, chunk.end)):
        if not last <= chunk.begin <= chunk.end <= end:
            got = f"bytes {chunk.begin} to {chunk.end}"
            raise CHUNKS.refused(chunk.where, got, f"a place between {last} and {end}")
        last = chunk.end
    left = PAGES.most
    for chunk in chunks:
        left -= count_pages(data, chunk, left)


def declared_chunks(metadata: pq.FileMetaData, name: str) -> list[Chunk]:
    """List the column chunks of a file, and refuse one that no run's file has."""
    chunks = []
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        for place in range(metadata.num_columns):
            column = rows.column(place)
            values = column.num_values
            where = f"{name} row group {group} column {quote(column.path_in_schema)}"
            if (codec := column.compression) not in CODECS:
                raise CODEC.refused(where, quote(codec), " or ".join(CODECS))
            if values != rows.num_rows or column.file_path:
                raise CHUNKS.refused(where, f"{values} values", f"{rows.num_rows}, as many as rows, here")
            begin, dictionary = column.data_page_offset, column.dictionary_page_offset
            if dictionary is not None and 0 < dictionary < begin:
                begin = dictionary
            size, decoded = column.total_compressed_size, column.total_uncompressed_size
            if size < 0 or decoded < 0:
                got = f"{size} bytes, {decoded} when decompressed"
                raise CHUNKS.refused(where, got, "sizes of zero or more")
            chunks.append(Chunk(where, begin, begin + size, decoded, values))
    return chunks


def count_pages(data: bytes, chunk: Chunk, most: int) -> int:
    """Walk along the pages of a chunk, hold their headers against it, and say how many there are."""
    at = chunk.begin
    pages = decoded = values = 0
    while at < chunk.end:
        pages += 1
        if pages > most:
            PAGES.check(PAGES.most + 1, chunk.where)
        behind, size, whole, count = read_header(data, at, chunk.where)
        PAGE_BYTES.check(whole, chunk.where)
        decoded += whole + behind - at
        values += count
        at = behind + size
    if at != chunk.end or values != chunk.values or decoded > chunk.decoded:
        got = f"pages of {values} values to byte {at}, {decoded} bytes when decompressed"
        raise PAGE_HEADERS.refused(
            chunk.where, got, f"{chunk.values} values to byte {chunk.end}, {chunk.decoded} bytes"
        )
    return pages


def read_header(data: bytes, at: int, where: str) -> tuple[int, int, int, int]:
    """Read a page's header: where it ends, its page's size, that when decompressed, its values (a dictionary: none)."""
    if common := _COMMON.match(data, at):
        whole, size, count = map(_number, common.group(1, 2, 3) if common[1] else common.group(4, 5, 6))
        if min(whole, size, count) >= 0:
            return common.end(), size, whole, count if common[1] else 0
    reader = Reader(data, at, _MOST_IN_A_HEADER)
    try:
        fields = reader.struct()
        kind, whole, size = (fields[number][1] for number in (1, 2, 3))
        count = fields[_COUNTS[kind]][1][1][1]
    except (Malformed, KeyError, TypeError, IndexError) as error:
        fault = str(error) if isinstance(error, Malformed) else "lacks a field"
        raise PAGE_HEADERS.refused(where, f"a page header that {fault}", "one as parquet has") from error
    if not all(isinstance(number, int) and number >= 0 for number in (whole, size, count)):
        raise PAGE_HEADERS.refused(where, f"a page of {quote(size)} bytes", "sizes of zero or more")
    return reader.at, size, whole, 0 if kind == _DICTIONARY else count


def _number(text: bytes) -> int:
    """Decode a number that :data:`_COMMON` matched: seven bits a byte, the lowest first, the sign in the lowest bit."""
    number = 0
    for byte in reversed(text):
        number = number << 7 | byte & 0x7F
    return (number >> 1) ^ -(number & 1)
