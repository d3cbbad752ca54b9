"""Thrift's compact protocol, read as far as it takes to see what the pages of a parquet file declare of themselves.

A parquet library decompresses into what a page's header declares, so the headers are read before it may. All bytes come
from others: depth and number of values are capped, and every fault is a :class:`Malformed`. Source: the compact
protocol's specification (github.com/apache/thrift, doc/specs/thrift-compact-protocol.md) and ``parquet.thrift``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

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
        """Read a struct and stand behind it."""
        fields: Struct = {}
        number = 0
        while (header := self._byte()) != STOP:
            step, kind = header >> 4, header & 0x0F
            last, number = number, number + step if step else self._zigzag()
            if not last < number <= 0x7FFF:  # two parsers may take two fields of one number for another
                raise Malformed(f"holds a field of number {number} after one of number {last}")
            self._spend(depth + 1)
            fields[number] = (kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth + 1))
        return fields

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
        values = []
        for _ in range(size):
            self._spend(depth + 1)
            values.append(self._value(header & 0x0F, depth + 1))
        return header & 0x0F, values

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
