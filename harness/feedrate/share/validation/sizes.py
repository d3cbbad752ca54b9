"""What a parquet file declares of its size, held against the caps before anything is decompressed.

The footer says where every column chunk lies and how large it is; the pages' own headers say how much memory their
decompression takes, and a library believes them. So the chunks must lie within the file and apart from each other, and
every page header is read and must add up to what the footer says.

A run has hundreds of pages and a site thousands of runs. Nearly all headers have the few fields that Arrow writes, in
its order: one pattern takes those in at a tenth of the time. What it does not match is read field by field.

Thrift's compact protocol, read as far as it takes to see what the pages of a parquet file declare of themselves.

A parquet library decompresses into what a page's header declares, so the headers are read before it may. Source: the
compact protocol's specification (github.com/apache/thrift, doc/specs/thrift-compact-protocol.md) and
``parquet.thrift``. Whatever is read here comes from others: depth and number of values are capped, and every fault is
a :class:`Malformed`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from feedrate.share.validation.caps import DECODED_BYTES, PAGE_BYTES, PAGES, Cap
from feedrate.share.validation.findings import Refused, Rule, shown

if TYPE_CHECKING:
    import pyarrow.parquet as pq


STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
"""Kinds of a value."""
_DEEPEST = 16
_LONGEST_VARINT = 10
"""Bytes of a number of 64 bits."""

Struct = dict[int, tuple[int, Any]]
"""Field number to kind and value; a list is ``(kind of its elements, values)``."""


class Malformed(ValueError):
    """Bytes that are no struct of this protocol, or one that is larger than what may be read."""


@dataclass(slots=True)
class Reader:
    """Reads structs from bytes, from a place on."""

    data: bytes
    at: int = 0
    """Where the next byte is read."""
    left: int = 4096
    """How many more values may be read."""

    def struct(self, depth: int = 0) -> Struct:
        """Read a struct and stand behind it.

        Raises:
            Malformed: it ends too early, nests too deeply or holds too much.
        """
        found: Struct = {}
        number = 0
        while (header := self._byte()) != STOP:
            step, kind = header >> 4, header & 0x0F
            last = number
            number = number + step if step else self._zigzag()
            if not last < number <= 0x7FFF:  # two parsers may take two fields of one number for another
                raise Malformed(f"holds a field of number {number} after one of number {last}")
            self._spend(depth + 1)
            found[number] = (kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth + 1))
        return found

    def _spend(self, depth: int) -> None:
        self.left -= 1
        if depth > _DEEPEST or self.left < 0:
            raise Malformed("nests too deeply" if depth > _DEEPEST else "holds too many values")

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (TRUE, FALSE, BYTE):  # of a list: one byte each
            return self._byte()
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind == DOUBLE:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind in (LIST, SET):
            return self._list(depth)
        if kind == STRUCT:
            return self.struct(depth)
        raise Malformed(f"holds a value of the unknown kind {kind}")  # a map: parquet has none

    def _list(self, depth: int) -> tuple[int, list[Any]]:
        header = self._byte()
        size = header >> 4 if header >> 4 < 15 else self._varint()
        if size > self.left:
            raise Malformed(f"declares a list of {size} values")
        found = []
        for _ in range(size):
            self._spend(depth + 1)
            found.append(self._value(header & 0x0F, depth + 1))
        return header & 0x0F, found

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for place in range(_LONGEST_VARINT):
            byte = self._byte()
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return number
        raise Malformed("holds a number of more than 64 bits")

    def _byte(self) -> int:
        if not 0 <= self.at < len(self.data):
            raise Malformed("ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise Malformed(f"declares {size} bytes where {max(0, len(self.data) - self.at)} are left")
        self.at += size
        return self.data[self.at - size : self.at]


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
class _Chunk:
    name: str
    group: int
    column: str
    begin: int
    end: int
    decoded: int
    values: int

    @property
    def where(self) -> str:
        return _where(self.name, self.group, self.column)


def check(data: bytes, metadata: pq.FileMetaData, end: int, name: str) -> None:
    """Hold what a file declares of its chunks and pages against the caps and against each other.

    Raises:
        Refused: something does not add up, or is more than is accepted.
    """
    chunks = [
        _chunk(rows, group, column, name)
        for group in range(metadata.num_row_groups)
        for rows in [metadata.row_group(group)]
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


def _where(name: str, group: int, column: str) -> str:
    return f"{name} row group {group} column {shown(column)}"


def _chunk(rows: pq.RowGroupMetaData, group: int, column: int, name: str) -> _Chunk:
    chunk = rows.column(column)
    path, values = chunk.path_in_schema, chunk.num_values
    if (codec := chunk.compression) not in CODECS:
        raise Refused(CODEC.name, _where(name, group, path), shown(codec), " or ".join(CODECS))
    if values != rows.num_rows or chunk.file_path:
        expected = f"{rows.num_rows}, as many as rows, here"
        raise Refused(CHUNKS.name, _where(name, group, path), f"{values} values", expected)
    begin = chunk.data_page_offset
    if (dictionary := chunk.dictionary_page_offset) is not None and 0 < dictionary < begin:
        begin = dictionary
    size, decoded = chunk.total_compressed_size, chunk.total_uncompressed_size
    if size < 0 or decoded < 0:
        got = f"{size} bytes, {decoded} when decompressed"
        raise Refused(CHUNKS.name, _where(name, group, path), got, "sizes of zero or more")
    return _Chunk(name, group, path, begin, begin + size, decoded, values)


def _pages(data: bytes, chunk: _Chunk, left: int) -> int:
    """Walk along the pages of a chunk and return how many there are."""
    at = chunk.begin
    pages = decoded = values = 0
    while at < chunk.end:
        pages += 1
        if pages > left:
            within(PAGES, PAGES.most + 1, chunk.where)
        behind, size, whole, count = _header(data, at, chunk)
        if PAGE_BYTES.exceeded(whole):
            within(PAGE_BYTES, whole, chunk.where)
        decoded += whole + behind - at
        values += count
        at = behind + size
    if at != chunk.end or values != chunk.values or decoded > chunk.decoded:
        raise Refused(
            PAGE_HEADERS.name,
            chunk.where,
            f"pages of {values} values to byte {at}, {decoded} bytes when decompressed",
            f"{chunk.values} values to byte {chunk.end}, {chunk.decoded} bytes",
        )
    return pages


def _header(data: bytes, at: int, chunk: _Chunk) -> tuple[int, int, int, int]:
    """Read a page's header: where it ends, its page's size, that when decompressed, its values (a dictionary: none)."""
    if found := _COMMON.match(data, at):
        whole, size, count = map(_number, found.group(1, 2, 3) if found[1] else found.group(4, 5, 6))
        if min(whole, size, count) >= 0:
            return found.end(), size, whole, count if found[1] else 0
    reader = Reader(data, at, _MOST_IN_A_HEADER)
    size, whole, count = _any_header(reader, chunk)
    return reader.at, size, whole, count


def _number(text: bytes) -> int:
    """Decode a number that :data:`_COMMON` matched: seven bits a byte, the lowest first, the sign in the lowest bit."""
    number = 0
    for byte in reversed(text):
        number = number << 7 | byte & 0x7F
    return (number >> 1) ^ -(number & 1)


def _any_header(reader: Reader, chunk: _Chunk) -> tuple[int, int, int]:
    """Read a header field by field: sizes and values of its page."""
    try:
        fields = reader.struct()
        kind, whole, size = (fields[number][1] for number in (1, 2, 3))
        count = fields[_COUNTS[kind]][1][1][1]
    except (Malformed, KeyError, TypeError, IndexError) as error:
        got = f"a page header that {_fault(error)}"
        raise Refused(PAGE_HEADERS.name, chunk.where, got, "one as parquet has") from error
    if not all(isinstance(number, int) and number >= 0 for number in (whole, size, count)):
        raise Refused(PAGE_HEADERS.name, chunk.where, f"a page of {shown(size)} bytes", "sizes of zero or more")
    return size, whole, 0 if kind == _DICTIONARY else count


def _fault(error: Exception) -> str:
    return str(error) if isinstance(error, Malformed) else "lacks a field"
