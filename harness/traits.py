"""What a storage format is and can do, read from its file without importing it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from harness import registry

STREAM_SHARDS = 32
"""Files that a format which can only be streamed is cut into: at most so many workers can share it."""


@dataclass(frozen=True, slots=True)
class Traits:
    """A format's ``TRAITS``, a dictionary of literals in its file."""

    container: str
    """What holds the samples: files, lmdb, hdf5, raw file, zarr, arrow, tfrecord, recordio, tar."""
    stores: str
    """What a sample is on disk: pixels, lz4 or gzip (pixels, compressed), png, jpeg."""
    access: tuple[str, ...] = ("random", "sequential")
    """Orders in which samples can be read. A format without ``random`` is streamed: each worker reads whole shards."""
    knobs: tuple[str, ...] = ()
    """Axes that this format has and others have not: decoder, readahead, swmr."""
    lossy: bool = False
    """Whether what is read differs from what was packed."""

    @property
    def streamed(self) -> bool:
        """Whether it can only be read from one end of a shard to the other."""
        return "random" not in self.access

    @property
    def encoded(self) -> bool:
        """Whether a sample is an image file, which is decoded, rather than its pixels."""
        return self.stores in ("png", "jpeg")


@cache
def traits(storage_format: str) -> Traits:
    """Read the traits of a format by its name; one without ``TRAITS`` holds pixels in a container of its name.

    A name that is no format is left for others to complain of.
    """
    given: dict[str, Any] = {"container": storage_format, "stores": "pixels"}
    if storage_format in registry.names("harness.formats"):
        given |= registry.declared("harness.formats", storage_format, "TRAITS") or {}
    return Traits(**given)
