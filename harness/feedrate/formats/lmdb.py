"""LMDB with raw pixels: one memory-mapped file, one value a sample, all of its fields one after the other.

Nothing is left to decode: what differs from a folder of PNG files is that pixels, not compressed files, are stored
(that is most of the effect), and that a read is a copy out of the page cache without a system call.

The pitfalls of the container, and how they are met, are in ``feedrate.formats._lmdb``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from feedrate.formats import ReadOptions, Sample
from feedrate.formats._lmdb import Values, pack_values
from feedrate.formats._pixels import Buffer, PixelReader, flat

REQUIRES: dict[str, str] = {"lmdb": "lmdb", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "lmdb", "stores": "pixels", "knobs": ("readahead",)}


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as raw pixels into ``root/data.mdb``."""
    pack_values(map(flat, samples), root)


class LmdbReader(PixelReader):
    """Shares one environment a process."""

    def __init__(self, root: Path, options: ReadOptions) -> None:
        super().__init__(root)
        self._values = Values(root, options)

    def read_into(self, index: int, buffer: Buffer) -> None:
        """Copy the value of sample ``index`` out of the map."""
        value = self._values.value(index)
        if len(value) != len(buffer):
            raise self._values.damage(index, f"{len(value)} bytes, expected {len(buffer)}")
        buffer[:] = value


open = LmdbReader
