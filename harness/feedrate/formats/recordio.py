"""RecordIO: MXNet's single file of framed records, one a field of a sample, each a PNG file behind MXNet's header.

MXNet is archived and no maintained package reads its files, so the codec is here, by dmlc-core's ``recordio.h`` and
MXNet's ``recordio.py``:

- a record is one or more chunks, each ``0xced7230a``, a length (29 bits, below a flag of 3) and that many bytes,
  padded with zeros to a multiple of 4;
- the magic number may not occur in the data at a multiple of 4: a record that contains it is cut there, the number left
  out, and the chunks are flagged 1 (first), 2 (middle) and 3 (last) instead of 0 (whole);
- the data begin with ``IRHeader``, as ``im2rec`` writes it: flag 0, label (here the index, as a float), id (the index)
  and id2, which MXNet leaves to its users: here the field.

MXNet can read ``data.rec``, but not the index: its own is text, and 100,000 of its lines take longer than the 50 ms in
which a set should open. Here ``data.idx`` is one little-endian uint64 a record, its begin, and one for the end.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from feedrate.formats import Sample
from feedrate.formats._images import EncodedReader, Files, encode_all

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
        for index, files in enumerate(encode_all(samples)):
            for field, data in enumerate(files):
                begins.write(end.to_bytes(_OFFSET.itemsize, "little"))
                end += records.write(frame(_IR_HEADER.pack(0, float(index), index, field) + data))
        begins.write(end.to_bytes(_OFFSET.itemsize, "little"))


class _Opened:
    """The file of records, open, and where they begin."""

    def __init__(self, root: Path) -> None:
        self.begins = np.fromfile(root / "data.idx", _OFFSET)
        self.descriptor = os.open(root / "data.rec", os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class RecordReader(EncodedReader):
    """One descriptor a process."""

    file = "data.rec"

    def open_files(self) -> _Opened:
        """Open both files, and compare their sizes with what was packed."""
        opened, expected = _Opened(self.root), len(self) * len(self.kinds) + 1
        if len(opened.begins) != expected:
            raise ValueError(f"data.idx has {len(opened.begins)} places, expected {expected}")
        size, needed = os.fstat(opened.descriptor).st_size, int(opened.begins[-1])
        if size != needed:
            raise ValueError(f"{size} bytes, expected {needed}")
        return opened

    def files(self, index: int) -> Files:
        """Read the records of sample ``index`` in one call."""
        opened, fields = self.opened(), len(self.kinds)
        begin, end = (int(opened.begins[record]) for record in (index * fields, (index + 1) * fields))
        if not 0 <= end - begin <= int(opened.begins[-1]):
            raise ValueError("its place in data.idx is no place in data.rec")
        data = os.pread(opened.descriptor, end - begin, begin)
        files, offset = [], 0
        for field in range(fields):
            record, offset = unframe(data, offset)
            if len(record) < _IR_HEADER.size or _IR_HEADER.unpack_from(record)[2:] != (index, field):
                raise ValueError(f"another record where field {field} should be")
            files.append(record[_IR_HEADER.size :])
        if offset != len(data):
            raise ValueError("bytes after the last field")
        return files


open = RecordReader
