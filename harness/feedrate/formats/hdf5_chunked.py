"""HDF5 in chunks of 16 samples, compressed with gzip: how files are often packed, and what random access then costs.

A chunk is the least that HDF5 can read: a sample at random costs the reading and decompressing of 16. Read in order,
each chunk is decompressed once, in one process; with workers that take turns at batches smaller than a chunk, once for
each of them. Sixteen is a choice. The chunk cache has room for two chunks: HDF5's own, 1 or 8 MiB by version, silently
holds none when chunks are larger. Chunks are compressed with zlib at level 4, h5py's own; the last one is filled with
zeros. The pitfalls of the container are in ``feedrate.formats.hdf5``.
"""

from __future__ import annotations

import zlib
from functools import partial

from feedrate.formats.hdf5 import Hdf5Reader, pack_chunks

REQUIRES: dict[str, str] = {"h5py": "h5py", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "hdf5", "stores": "gzip", "knobs": ("swmr",)}
CHUNK_SAMPLES: int = 16
"""Samples that are read together; a plan reads this without importing the file."""
COMPRESS_LEVEL = 4
"""zlib level (0 to 9): h5py's default for gzip."""
CACHED_CHUNKS = 2

pack = partial(
    pack_chunks,
    per_chunk=CHUNK_SAMPLES,
    compress=partial(zlib.compress, level=COMPRESS_LEVEL),
    compression="gzip",
    compression_opts=COMPRESS_LEVEL,
)
open = partial(Hdf5Reader, cached_samples=CACHED_CHUNKS * CHUNK_SAMPLES)
