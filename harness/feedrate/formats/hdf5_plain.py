"""The same HDF5 file as ``hdf5`` writes, read as h5py's documentation does it: ``file["pixels"][index]``.

What it shows beside ``hdf5``: the cost of h5py's own indexing, which builds a selection, a type and an array at every
read, and of its defaults, a chunk cache and locks. How most training scripts read HDF5.

The pitfalls of the container are in ``feedrate.formats.hdf5``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from feedrate.formats import Buffer, PerProcess, PixelReader, ReadOptions, damaged
from feedrate.formats.hdf5 import FAILURES, NAME, check_length
from feedrate.formats.hdf5 import pack as pack  # noqa: PLC0414 - a format's own name

REQUIRES: dict[str, str] = {"h5py": "h5py", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "hdf5", "stores": "pixels"}


def _opened(root: Path, shape: tuple[int, int]) -> Any:
    path = root / NAME
    try:
        check_length(path)
        pixels = h5py.File(path, "r")["pixels"]
        stored = (pixels.shape, pixels.dtype)
    except FileNotFoundError as error:
        raise damaged(path, error, root) from error
    except FAILURES as error:
        raise damaged(path, f"not readable ({error})", root) from error
    if stored != (shape, np.uint8):
        raise damaged(path, f"holds {stored[1]} {stored[0]}, expected uint8 {shape}", root)
    return pixels


class PlainReader(PixelReader):
    """Holds an open file in each process."""

    def __init__(self, root: Path, _options: ReadOptions) -> None:
        super().__init__(root)
        self._pixels = PerProcess(_opened, root, (len(self), self.size))

    def read_into(self, index: int, buffer: Buffer) -> None:
        """Have h5py read sample ``index`` into an array of its own, and copy that."""
        try:
            np.asarray(buffer)[:] = self._pixels()[index]
        except FAILURES as error:
            raise damaged(self.root / NAME, str(error), self.root, index) from error


open = PlainReader
