"""LMDB with PNG files as values: the container of ``lmdb``, the files of ``png``.

A value is the length of each field's file (4 bytes, little-endian) and then the files. Against ``png`` it shows what
one large file saves over many small ones, against ``lmdb`` what decoding costs. Most published LMDB data sets hold
encoded values.

The pitfalls of the container are in ``feedrate.formats.lmdb``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import accumulate, pairwise
from pathlib import Path

from feedrate.formats import Sample
from feedrate.formats._images import EncodedReader, Files, encode_all
from feedrate.formats.lmdb import Values, pack_values

REQUIRES: dict[str, str] = {"lmdb": "lmdb", "PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "lmdb", "stores": "png", "knobs": ("decoder", "readahead"), "mapped": True}


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as PNG files into ``root/data.mdb``."""
    pack_values(map(_value, encode_all(samples)), root)


def _value(files: Files) -> bytes:
    return b"".join((struct.pack(f"<{len(files)}I", *map(len, files)), *files))


class LmdbPngReader(Values, EncodedReader):
    """Values are files."""

    def files(self, index: int) -> Files:
        """Copy the files of sample ``index`` out of the map."""
        value, lengths = self.view(index), f"<{len(self.kinds)}I"
        ends = list(accumulate(struct.unpack_from(lengths, value), initial=struct.calcsize(lengths)))
        if ends[-1] != len(value):
            raise ValueError(f"{len(value)} bytes, its fields' lengths add up to {ends[-1]}")
        return [bytes(value[start:end]) for start, end in pairwise(ends)]


open = LmdbPngReader
