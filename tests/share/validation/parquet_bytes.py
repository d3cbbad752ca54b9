"""Parquet's own structures, read and written as they are: no library writes what is wrong, and tests need it wrong."""

from __future__ import annotations

import struct as packing
from collections.abc import Iterator
from typing import Any

from feedrate.share.validation import thrift

MAGIC = b"PAR1"
COLUMN = {1: (thrift.I32, 2), 3: (thrift.I32, 1), 4: (thrift.BINARY, b"0000000")}
"""A schema's element: an optional column of int64; its name has seven digits."""
EMPTY_GROUP = {1: (thrift.LIST, (thrift.STRUCT, [])), 2: (thrift.I64, 0), 3: (thrift.I64, 0)}
"""A row group without rows and columns."""


def footer_size(valid: bytes) -> int:
    """Bytes that a file says its footer has."""
    return int.from_bytes(valid[-8:-4], "little")


def footer_of(valid: bytes) -> thrift.Struct:
    """Read a file's footer (``FileMetaData`` in parquet.thrift)."""
    return thrift.Reader(valid, len(valid) - 8 - footer_size(valid), left=10**7).struct()


def closed(valid: bytes, footer: thrift.Struct, more: bytes = b"") -> bytes:
    """Give a file another footer, and bytes between its data and that."""
    return valid[: len(valid) - 8 - footer_size(valid)] + more + ended(struct(footer))


def ended(footer: bytes) -> bytes:
    """Write the end of a file: a footer, its length, the magic number."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def without_rows(elements: bytes, count: int) -> bytes:
    """Write a file that has a schema of so many elements, encoded already, and nothing else."""
    rest = struct({3: (thrift.I64, 0), 4: (thrift.LIST, (thrift.STRUCT, []))}, last=2)
    return MAGIC + ended(VERSION + bytes([0x19]) + _list_head(count, thrift.STRUCT) + elements + rest)


def columns(count: int) -> bytes:
    """Write a schema of so many columns, each with a name of its own."""
    before, after = struct(COLUMN).split(b"0000000")
    names = b"".join(before + b"%07d" % at + after for at in range(count))
    return struct({4: (thrift.BINARY, b"schema"), 5: (thrift.I32, count)}) + names


def groups(depth: int) -> bytes:
    """Write a schema of groups in groups."""
    return struct({4: (thrift.BINARY, b"group"), 5: (thrift.I32, 1)}) * depth + struct(COLUMN)


def structs(depth: int) -> bytes:
    """Write a file whose footer holds, in a field that nobody knows, structs in structs."""
    return MAGIC + ended(VERSION + bytes([0xBC]) + bytes([0x1C]) * depth + bytes(depth + 2))


def long_list(size: int, rest: bytes) -> bytes:
    """Write a file whose schema declares so many elements and has none."""
    return MAGIC + ended(VERSION + bytes([0x19, 0xF0 | thrift.STRUCT]) + varint(size) + rest)


def chunks(footer: thrift.Struct) -> list[thrift.Struct]:
    """List the metadata of all column chunks (``ColumnMetaData``)."""
    return [chunk[3][1] for group in footer[4][1][1] for chunk in group[1][1][1] if 3 in chunk]


def place(chunk: thrift.Struct) -> tuple[int, int]:
    """Say where a column chunk begins, and its size in bytes."""
    return min(chunk[number][1] for number in (9, 11) if number in chunk), chunk[7][1]


def repointed(valid: bytes, footer: thrift.Struct, chunk: thrift.Struct, pages: bytes) -> bytes:
    """Give one of the footer's column chunks other pages, which are put behind the data."""
    begin = len(valid) - 8 - footer_size(valid)
    shift = chunk[9][1] - chunk[11][1] if 11 in chunk else 0
    chunk |= {9: (thrift.I64, begin + shift), 7: (thrift.I64, len(pages))}
    if 11 in chunk:
        chunk[11] = (thrift.I64, begin)
    return closed(valid, footer, pages)


def page(kind: int, counts: thrift.Struct, body: bytes, declared: int) -> bytes:
    """Write a page: 0 of data, 2 of a dictionary; its header declares so many bytes when it is decompressed."""
    header = {1: (thrift.I32, kind), 2: (thrift.I32, declared), 3: (thrift.I32, len(body))}
    return struct(header | {7 if kind else 5: (thrift.STRUCT, counts)}) + body


def leaves(value: Any) -> Iterator[tuple[Any, int, int, Any]]:
    """(holder, key, kind, value) of every number and text of a struct, at any depth."""
    pairs = [(value, key, *value[key]) for key in value] if isinstance(value, dict) else []
    if isinstance(value, tuple):
        pairs = [(value[1], at, value[0], each) for at, each in enumerate(value[1])]
    for holder, key, kind, held in pairs:
        if kind in (thrift.STRUCT, thrift.LIST, thrift.SET):
            yield from leaves(held)
        elif kind not in (thrift.TRUE, thrift.FALSE, thrift.DOUBLE):
            yield holder, key, kind, held


def struct(fields: thrift.Struct, last: int = 0) -> bytes:
    """Write a struct, or its fields after one of a number."""
    parts = []
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in (thrift.TRUE, thrift.FALSE):
            kind = thrift.TRUE if value else thrift.FALSE
        step = number - last
        parts.append(bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + varint(_zigzag(number)))
        parts.append(b"" if kind in (thrift.TRUE, thrift.FALSE) else _encoded(kind, value))
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
        return varint(len(value)) + value if kind == thrift.BINARY else value
    if kind in (thrift.TRUE, thrift.FALSE, thrift.BYTE):
        return bytes([value & 0xFF])
    if kind in (thrift.I16, thrift.I32, thrift.I64):
        return varint(_zigzag(value))
    if kind == thrift.DOUBLE:
        return packing.pack("<d", value)
    if kind in (thrift.LIST, thrift.SET):
        inner, values = value
        return _list_head(len(values), inner) + b"".join(_encoded(inner, each) for each in values)
    return struct(value)


def _list_head(size: int, kind: int) -> bytes:
    return bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + varint(size)


def _zigzag(number: int) -> int:
    return (number << 1 ^ number >> 63) & (2**64 - 1)


VERSION = struct({1: (thrift.I32, 2)})[:-1]
"""The first field of every footer."""
