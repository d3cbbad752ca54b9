"""Parquet's own structures, read and written as they are: no library writes what is wrong, and tests need it wrong."""

from __future__ import annotations

import struct as packing
import zlib
from collections.abc import Iterator
from typing import Any

Struct = dict[int, tuple[int, Any]]
"""Field number to kind and value; a list is ``(kind of its elements, values)``."""
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, _, STRUCT = range(13)
"""Kinds of a value in Thrift's compact protocol."""
MAGIC = b"PAR1"
EMPTY_GROUP = {1: (LIST, (STRUCT, [])), 2: (I64, 0), 3: (I64, 0)}
"""A row group without rows and columns."""


class Reader:
    """Reads structs of Thrift's compact protocol from sound bytes, and stands behind each."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while (header := self._bytes(1)[0]) != STOP:
            step, kind = header >> 4, header & 0x0F
            number = number + step if step else self._number()
            fields[number] = (kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE, BYTE):  # of a list: one byte each
            return self._bytes(1)[0]
        if kind == DOUBLE:
            return packing.unpack("<d", self._bytes(8))[0]
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind in (LIST, SET):
            header = self._bytes(1)[0]
            size = header >> 4 if header >> 4 < 15 else self._varint()
            return header & 0x0F, [self._value(header & 0x0F) for _ in range(size)]
        return self.struct() if kind == STRUCT else self._number()

    def _number(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = place = 0
        while (byte := self._bytes(1)[0]) >= 0x80:
            number |= (byte & 0x7F) << place
            place += 7
        return number | byte << place

    def _bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]


def footer_at(valid: bytes) -> int:
    return len(valid) - 8 - int.from_bytes(valid[-8:-4], "little")


def footer_of(valid: bytes) -> Struct:
    """Read a file's footer (``FileMetaData`` in parquet.thrift)."""
    return Reader(valid, footer_at(valid)).struct()


def closed(valid: bytes, footer: Struct, more: bytes = b"") -> bytes:
    """Give a file another footer, and bytes between its data and that."""
    return valid[: footer_at(valid)] + more + ended(struct(footer))


def ended(footer: bytes) -> bytes:
    """Write the end of a file: a footer, its length, the magic number."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def chunks(footer: Struct) -> list[Struct]:
    """List the metadata of all column chunks (``ColumnMetaData``)."""
    return [chunk[3][1] for group in footer[4][1][1] for chunk in group[1][1][1] if 3 in chunk]


def chunk_of(footer: Struct, name: str) -> Struct:
    """The metadata of a column's first chunk."""
    return next(chunk for chunk in chunks(footer) if chunk[3][1][1] == [name.encode()])


def place(chunk: Struct) -> tuple[int, int]:
    """Say where a column chunk begins, and its size in bytes."""
    return min(chunk[number][1] for number in (9, 11) if number in chunk), chunk[7][1]


def first_page(valid: bytes, chunk: Struct) -> tuple[Struct, bytes]:
    """The header of a chunk's first page, and all bytes of the chunk behind it."""
    begin, size = place(chunk)
    reader = Reader(valid, begin)
    return reader.struct(), valid[reader.at : begin + size]


def body(valid: bytes, name: str) -> tuple[int, int]:
    """Say where the bytes of a column's first page lie: from, to."""
    chunk = chunk_of(footer_of(valid), name)
    header, rest = first_page(valid, chunk)
    begin = sum(place(chunk)) - len(rest)
    return begin, begin + header[3][1]


def repointed(valid: bytes, footer: Struct, chunk: Struct, pages: bytes) -> bytes:
    """Give one of the footer's column chunks other pages, which are put behind the data."""
    begin = footer_at(valid)
    shift = chunk[9][1] - chunk[11][1] if 11 in chunk else 0
    chunk |= {9: (I64, begin + shift), 7: (I64, len(pages))}
    if 11 in chunk:
        chunk[11] = (I64, begin)
    return closed(valid, footer, pages)


def checksum(body: bytes) -> int:
    """The checksum of a page, as its header has it."""
    return int(packing.unpack("<i", packing.pack("<I", zlib.crc32(body)))[0])


def page(kind: int, counts: Struct, body: bytes, declared: int) -> bytes:
    """Write a page: 0 of data, 2 of a dictionary; its header declares so many bytes when it is decompressed."""
    header = {1: (I32, kind), 2: (I32, declared), 3: (I32, len(body)), 4: (I32, checksum(body))}
    return struct(header | {7 if kind else 5: (STRUCT, counts)}) + body


def leaves(value: Any) -> Iterator[tuple[Any, int, int, Any]]:
    """(holder, key, kind, value) of every number and text of a struct, at any depth."""
    pairs = [(value, key, *value[key]) for key in value] if isinstance(value, dict) else []
    if isinstance(value, tuple):
        pairs = [(value[1], at, value[0], each) for at, each in enumerate(value[1])]
    for holder, key, kind, held in pairs:
        if kind in (STRUCT, LIST, SET):
            yield from leaves(held)
        elif kind not in (TRUE, FALSE, DOUBLE):
            yield holder, key, kind, held


def struct(fields: Struct) -> bytes:
    parts, last = [], 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        step = number - last
        parts.append(bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + varint(_zigzag(number)))
        parts.append(b"" if kind in (TRUE, FALSE) else _encoded(kind, value))
        last = number
    return b"".join(parts) + b"\0"


def varint(number: int) -> bytes:
    """Write a number, seven bits a byte."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _encoded(kind: int, value: Any) -> bytes:
    if isinstance(value, bytes):  # a text, or a struct that is written already
        return varint(len(value)) + value if kind == BINARY else value
    if kind in (TRUE, FALSE, BYTE):
        return bytes([value & 0xFF])
    if kind in (I16, I32, I64):
        return varint(_zigzag(value))
    if kind == DOUBLE:
        return packing.pack("<d", value)
    if kind in (LIST, SET):
        inner, values = value
        size = len(values)
        head = bytes([size << 4 | inner]) if size < 15 else bytes([0xF0 | inner]) + varint(size)
        return head + b"".join(_encoded(inner, each) for each in values)
    return struct(value)


def _zigzag(number: int) -> int:
    return (number << 1 ^ number >> 63) & (2**64 - 1)
