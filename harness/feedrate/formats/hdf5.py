"""HDF5, uncompressed, one sample a chunk: what a random read of a well-made HDF5 file costs.

Samples arrive without being counted first, so the data set must be able to grow, and that takes chunks; with one
sample in each and no chunk cache, HDF5 reads a sample straight from the file into the caller's memory, as it would
from a contiguous data set.

The pitfalls of the container, and how they are met, are in ``feedrate.formats._hdf5``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from feedrate.formats import Sample
from feedrate.formats._hdf5 import Hdf5Reader, pack_chunks
from feedrate.formats._pixels import flattened

REQUIRES: dict[str, str] = {"h5py": "h5py", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "hdf5", "stores": "pixels", "knobs": ("swmr",)}


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as raw pixels into ``root/pixels.h5``."""
    size, values = flattened(samples)
    pack_chunks(((1, value) for value in values), root, size, 1)


open = partial(Hdf5Reader, cached_samples=0)
