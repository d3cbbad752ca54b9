"""The same HDF5 file as ``hdf5`` writes, read as h5py's documentation does it: ``file["pixels"][index]``.

What it shows beside ``hdf5``: the cost of h5py's own indexing, which builds a selection, a type and an array at every
read, and of its defaults, a chunk cache and locks. How most training scripts read HDF5.

The pitfalls of the container are in ``feedrate.formats.hdf5``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedrate.formats import Buffer
from feedrate.formats.hdf5 import Hdf5Reader
from feedrate.formats.hdf5 import pack as pack  # noqa: PLC0414 - a format's own name

REQUIRES: dict[str, str] = {"h5py": "h5py", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "hdf5", "stores": "pixels"}


class PlainReader(Hdf5Reader):
    """Holds an open file in each process."""

    def open_files(self) -> Any:
        """Open the data set with h5py's defaults."""
        return self.dataset()

    def copy(self, index: int, buffer: Buffer) -> None:
        """Have h5py read sample ``index`` into an array of its own, and copy that."""
        np.asarray(buffer)[:] = self.opened()[index]


open = PlainReader
