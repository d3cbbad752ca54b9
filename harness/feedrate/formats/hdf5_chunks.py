"""HDF5 in chunks of 8 samples, uncompressed: what chunks cost and bring by themselves.

``hdf5`` has one sample a chunk and ``hdf5_chunked`` compressed chunks; this one differs from the first in its chunks
alone. A sample at random costs the reading of 8, as HDF5 reads whole chunks, which brings its neighbours into the page
cache. The chunk cache has room for two chunks, and the last chunk is filled with zeros, as in ``hdf5_chunked``.

The pitfalls of the container are in ``feedrate.formats.hdf5``.
"""

from __future__ import annotations

from functools import partial

from feedrate.formats.hdf5 import Hdf5Reader, pack_chunks

REQUIRES: dict[str, str] = {"h5py": "h5py", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "hdf5", "stores": "pixels", "knobs": ("swmr",)}
CHUNK_SAMPLES: int = 8
"""Samples that are read together; a plan reads this without importing the file."""
CACHED_CHUNKS = 2

pack = partial(pack_chunks, per_chunk=CHUNK_SAMPLES)
open = partial(Hdf5Reader, cached_samples=CACHED_CHUNKS * CHUNK_SAMPLES)
