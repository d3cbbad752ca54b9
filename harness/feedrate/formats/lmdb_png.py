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

from feedrate.formats import Reader, ReadOptions, Sample
from feedrate.formats._images import PNG, Encoded, Files, RawFiles, encode_all
from feedrate.formats.lmdb import Values, pack_values

REQUIRES: dict[str, str] = {"lmdb": "lmdb", "PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "lmdb", "stores": "png", "knobs": ("decoder", "readahead"), "mapped": True}


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as PNG files into ``root/data.mdb``."""
    pack_values(map(_value, encode_all(samples, PNG)), root)


def _value(files: Files) -> bytes:
    return b"".join((struct.pack(f"<{len(files)}I", *map(len, files)), *files))


class LmdbPngReader(Encoded, Reader):
    """Shares one environment a process."""

    file = "data.mdb"

    def __init__(self, root: Path, options: ReadOptions) -> None:
        super().__init__(root, options)
        self._values = Values(root, options)
        self._lengths = f"<{len(self.manifest.shapes)}I"

    def read(self, index: int) -> RawFiles:
        """Copy the files of sample ``index`` out of the map."""
        value = self._values.value(index)
        ends = list(accumulate(struct.unpack_from(self._lengths, value), initial=struct.calcsize(self._lengths)))
        if ends[-1] != len(value):
            raise self._values.damage(index, f"{len(value)} bytes, its fields' lengths add up to {ends[-1]}")
        return index, [bytes(value[start:end]) for start, end in pairwise(ends)]


open = LmdbPngReader
