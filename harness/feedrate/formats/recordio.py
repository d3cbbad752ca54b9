"""RecordIO: MXNet's single file of framed records, one a field of a sample, each a PNG file behind MXNet's header.

MXNet is archived and no maintained package reads its files, so the codec is here, by dmlc-core's ``recordio.h`` and
MXNet's ``recordio.py``:

- a record is one or more chunks, each ``0xced7230a``, a length (29 bits, below a flag of 3) and that many bytes,
  padded with zeros to a multiple of 4;
- the magic number may not occur in the data at a multiple of 4, so that a reader dropped anywhere finds the next
  record: a record that contains it is cut there, the number left out, and the chunks are flagged 1 (first), 2 (middle)
  and 3 (last) instead of 0 (whole);
- the data begin with ``IRHeader``, as ``im2rec`` writes it: flag 0, label (here the index, as a float), id (the index)
  and id2, which MXNet leaves to its users: here the field.

MXNet can read ``data.rec``, but not the index: its own is text, and 100,000 of its lines take longer than the 50 ms in
which a set should open. Here ``data.idx`` is one little-endian uint64 a record, its begin, and one for the end.

There is no checksum: damage in the frames is noticed by the magic number, lengths and ids, in the data by PNG's CRCs.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feedrate.formats import PerProcess, Reader, ReadOptions, Sample, damaged
from feedrate.formats._images import PNG, Encoded, RawFiles, encode_all

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {
    "container": "recordio",
    "stores": "png",
    "holds": ("images", "files"),
    "knobs": ("decoder",),
}
MAGIC = struct.pack("<I", 0xCED7230A)
LONGEST = (1 << 29) - 1
"""Bytes of a chunk, and so of a record."""
WHOLE, FIRST, MIDDLE, LAST = range(4)

_FRAME = struct.Struct("<4sI")
_IR_HEADER = struct.Struct("<IfQQ")
_OFFSET = np.dtype("<u8")


def frame(data: bytes) -> bytes:
    """Make a record of at most ``LONGEST`` bytes."""
    cuts = [match.start() for match in re.finditer(re.escape(MAGIC), data) if match.start() % 4 == 0]
    begins, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(data)]
    flags = [FIRST, *[MIDDLE] * (len(cuts) - 1), LAST] if cuts else [WHOLE]
    chunks: list[bytes] = []
    for flag, begin, end in zip(flags, begins, ends, strict=True):
        chunks += (_FRAME.pack(MAGIC, flag << 29 | end - begin), data[begin:end])
    chunks.append(bytes(-len(data) % 4))  # every chunk but the last is a multiple of 4
    return b"".join(chunks)


def unframe(data: bytes, begin: int) -> tuple[bytes, int]:
    """Give the bytes of the record that begins at ``begin``, and its end; a ValueError where no whole one does."""
    chunks: list[bytes] = []
    while True:
        if begin + _FRAME.size > len(data):
            raise ValueError("truncated record")
        magic, word = _FRAME.unpack_from(data, begin)
        flag, length = word >> 29, word & LONGEST
        if magic != MAGIC:
            raise ValueError("no record where one should begin")
        if flag not in ((MIDDLE, LAST) if chunks else (WHOLE, FIRST)):
            raise ValueError(f"a chunk with flag {flag} where a record {'goes on' if chunks else 'begins'}")
        begin += _FRAME.size
        if begin + length > len(data):
            raise ValueError("truncated record")
        chunks.append(data[begin : begin + length])
        begin += length + -length % 4
        if flag in (WHOLE, LAST):
            return MAGIC.join(chunks), begin


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as PNG files into ``root/data.rec``, and where they begin into ``root/data.idx``."""
    end = 0
    with (root / "data.rec").open("wb") as records, (root / "data.idx").open("wb") as begins:
        for index, files in enumerate(encode_all(samples, PNG)):
            for field, data in enumerate(files):
                begins.write(end.to_bytes(_OFFSET.itemsize, "little"))
                end += records.write(frame(_IR_HEADER.pack(0, float(index), index, field) + data))
        begins.write(end.to_bytes(_OFFSET.itemsize, "little"))


class _Opened:
    """The file of records, open, and where they begin."""

    def __init__(self, root: Path, records: int) -> None:
        index, data = root / "data.idx", root / "data.rec"
        try:
            self.begins: NDArray[np.uint64] = np.fromfile(index, _OFFSET)
            self.descriptor = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise damaged(Path(error.filename), error, root) from error
        if len(self.begins) != records + 1:
            raise damaged(index, f"{len(self.begins)} places, expected {records + 1}", root)
        size, needed = os.fstat(self.descriptor).st_size, int(self.begins[-1])
        if size != needed:
            raise damaged(data, f"{size} bytes, expected {needed}", root)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class RecordReader(Encoded, Reader):
    """One descriptor a process."""

    file = "data.rec"

    def __init__(self, root: Path, options: ReadOptions) -> None:
        super().__init__(root, options)
        self._fields = len(self.manifest.shapes)
        self._opened = PerProcess(_Opened, root, len(self) * self._fields)

    def read(self, index: int) -> RawFiles:
        """Read the records of sample ``index`` in one call."""
        opened = self._opened()
        first = index * self._fields
        begin, end = int(opened.begins[first]), int(opened.begins[first + self._fields])
        files, offset = [], 0
        try:
            if not 0 <= end - begin <= int(opened.begins[-1]):
                raise ValueError("its place in data.idx is no place in data.rec")
            data = os.pread(opened.descriptor, end - begin, begin)
            for field in range(self._fields):
                record, offset = unframe(data, offset)
                if len(record) < _IR_HEADER.size or _IR_HEADER.unpack_from(record)[2:] != (index, field):
                    raise ValueError(f"another record where field {field} should be")
                files.append(record[_IR_HEADER.size :])
            if offset != len(data):
                raise ValueError("bytes after the last field")
        except (OSError, ValueError) as error:
            raise damaged(self.path(index, 0), f"damaged ({error})", self.root, index) from error
        return index, files


open = RecordReader
