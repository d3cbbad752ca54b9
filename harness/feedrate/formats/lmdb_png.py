"""LMDB with PNG files as values: the container of ``lmdb``, the files of ``png``.

A value is the length of each field's file (4 bytes, little-endian) and then the files, one after the other. Against
``png`` it shows what one large file saves over many small ones, which is little beside decoding; against ``lmdb`` what
decoding costs. Encoded values are what most published LMDB data sets hold.

The pitfalls of the container, and how they are met, are in ``feedrate.formats._lmdb``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from feedrate.formats import Reader, ReadOptions, Sample
from feedrate.formats._encoded import EncodedRaw, EncodedReader
from feedrate.formats._encoding import PNG, File, encoded
from feedrate.formats._lmdb import Values, pack_values

REQUIRES: dict[str, str] = {"lmdb": "lmdb", "PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "lmdb", "stores": "png", "knobs": ("decoder", "readahead")}


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as PNG files into ``root/data.mdb``.

    Args:
        samples: tuples of uint8 arrays, height × width × channels (1, 3 or 4), all with the same number of fields.
        root: an empty folder.

    Raises:
        InputError: a field has another number of channels.
        OSError: the disk is full, or LMDB cannot write there.
    """
    pack_values(map(_value, encoded(samples, PNG)), root)


def _value(files: Sequence[File]) -> bytes:
    return b"".join((struct.pack(f"<{len(files)}I", *(len(file.data) for file in files)), *(f.data for f in files)))


def open(root: Path, options: ReadOptions) -> Reader:  # the name is the plug-in contract's
    """Give random access to what ``pack`` wrote into ``root``.

    Raises:
        DataError: there is no readable manifest.
        InputError: the decoder is unknown, not installed, or decodes no PNG.
    """
    return _LmdbPngReader(root, options)


class _LmdbPngReader(EncodedReader):
    """Shares one environment a process."""

    codec = PNG

    def __init__(self, root: Path, options: ReadOptions) -> None:
        super().__init__(root, options)
        self._values = Values(root, options)
        self._lengths = f"<{len(self.manifest.shapes)}I"

    def path(self, index: int, field: int) -> Path:  # noqa: ARG002 - all are in one
        """Name the file of all samples."""
        return self.root / "data.mdb"

    def read(self, index: int) -> EncodedRaw:
        """Copy the files of sample ``index`` out of the map.

        Returns:
            The index and each field's file, as bytes.

        Raises:
            DataError: the data are missing, truncated or damaged, or have no such sample.
        """
        value = self._values.value(index)
        begin = struct.calcsize(self._lengths)
        if len(value) < begin:
            raise self._values.damage(index, f"{len(value)} bytes, too few for the lengths of its fields")
        ends = list(accumulate(struct.unpack_from(self._lengths, value), initial=begin))
        if ends[-1] != len(value):
            raise self._values.damage(index, f"{len(value)} bytes, its fields' lengths add up to {ends[-1]}")
        return index, [bytes(value[start:end]) for start, end in pairwise(ends)]
