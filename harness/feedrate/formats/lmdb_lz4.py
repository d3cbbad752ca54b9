"""LMDB, the fields of a sample serialised together and compressed with lz4 in one value.

The experiment behind this project used LMDB values of a pair of arrays that ``pyarrow.serialize``, now gone, joined and
lz4 compressed. Here the shapes stand once in the manifest, which saves the deserialisation of each sample.

What it shows: lz4 saves 0 to 17 % of the bytes of photographs, as sensor noise does not compress, and takes time to
decode. It pays where pixels repeat, such as drawings or masks, and where the disk is slower than lz4.

The pitfalls of the container are in ``feedrate.formats.lmdb``. A checksum of the content would find damage at every
read, for half of what decoding costs: ``lmdb`` has none either.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import lz4.frame
import numpy as np

from feedrate.formats import Reader, Sample, cut, flat
from feedrate.formats.lmdb import Values, pack_values

REQUIRES: dict[str, str] = {"lmdb": "lmdb", "lz4": "lz4", "numpy": "numpy"}
VERSION: int = 2
TRAITS: dict[str, object] = {"container": "lmdb", "stores": "lz4", "knobs": ("readahead",), "mapped": True}


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as compressed pixels into ``root/data.mdb``."""
    pack_values((lz4.frame.compress(flat(sample)) for sample in samples), root)


class Lz4Reader(Values, Reader):
    """Values are compressed pixels."""

    failures = (*Values.failures, RuntimeError)

    def read(self, index: int) -> tuple[int, bytes]:
        """Copy the compressed pixels of sample ``index`` out of the map."""
        try:
            return index, bytes(self.view(index))
        except self.failures as error:
            raise self.damage(error, index) from error

    def decode(self, raw: tuple[int, bytes]) -> Sample:
        """Decompress a sample and cut it into its fields."""
        index, value = raw
        try:
            pixels = lz4.frame.decompress(value, return_bytearray=True)
            return cut(np.frombuffer(pixels, np.uint8), self.manifest.shapes)
        except self.failures as error:
            raise self.damage(error, index) from error


open = Lz4Reader
