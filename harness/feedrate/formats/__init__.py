"""Storage formats: samples ↔ bytes on disk. One file a format, found by its name, imported only when used.

A format module has a docstring (what it is, its pitfalls), and

- ``REQUIRES: dict[str, str]``: third-party modules that it imports → the name that pip installs;
- ``VERSION: int``: raised when the bytes on disk change;
- ``TRAITS: dict[str, object]``: what it is and can do, as ``feedrate.schema.plugins.Traits`` explains;
- ``pack(samples, root)``: writes an iterable of samples, all of the same shapes, into the empty folder ``root`` and
  holds few of them at a time. It raises ``InputError`` where the format cannot hold them (image files have 1, 3 or 4
  channels) and ``OSError`` where the disk cannot take them;
- ``open(root, options)``: a ``Reader`` over what was packed, or a ``Stream`` where samples can only be read in order.
  It raises ``DataError`` where there is no readable manifest and ``InputError`` where the decoder cannot be used.

Packing is made atomic, counted, hashed and described (``manifest.json``) around ``pack`` by ``feedrate.trial.prepare``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from feedrate.schema.errors import DataError

__all__ = ["LEAST_IMAGE", "Image", "Manifest", "Packed", "ReadOptions", "Reader", "Sample", "Stream"]
__all__ += ["_images", "_pixels", "memmap"]  # the underscore says that a file is no plug-in

Image = NDArray[np.uint8]
"""Pixels, height × width × channels, uint8."""
LEAST_IMAGE = 8
"""A field with fewer rows or columns, such as a label, is no image: what is lossy stores it as it is."""
Sample = tuple[Image, ...]
"""One sample: its fields in the workload's order; (input, target) for super-resolution."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a packed folder holds; written last, so that a folder with one is whole."""

    count: int
    """Samples."""
    shapes: tuple[tuple[int, ...], ...]
    """Shape of each field of a sample; all samples of a set have the same."""
    bytes: int
    """Size on disk of all files."""
    data_hash: str
    """First 16 hex digits of sha256 over all decoded fields in order."""
    workload_version: int
    """Of the workload that made the samples."""
    format_version: int
    """Of the format that wrote them."""
    pack_s: float
    """How long packing took."""
    notes: tuple[str, ...] = ()
    """What a reader of results should know, such as files that were skipped."""
    checksum: str = ""
    """CRC-32 over the names and bytes of all files, 8 hex digits: a flipped bit among raw pixels shows nowhere else."""

    @classmethod
    def load(cls, root: Path) -> Manifest:
        """Read ``root/manifest.json``.

        Raises:
            DataError: there is none, or it cannot be understood.
        """
        path = root / "manifest.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            raw["shapes"] = tuple(tuple(shape) for shape in raw["shapes"])
            raw["notes"] = tuple(raw["notes"])
            return cls(**raw)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path}: not a readable manifest ({error}); delete {root} and run again") from error


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How packed samples are opened: the axes that are knobs of some formats. A format ignores those of others."""

    decoder: str = "pil"
    """A name of ``feedrate.formats.decoders``, for stored image files."""
    readahead: bool = True
    """LMDB: whether the kernel may read ahead."""
    swmr: bool = False
    """HDF5: single writer, multiple readers."""


class Packed(ABC):
    """What ``pack`` wrote, opened.

    It is created in the training process and used in its workers: it must hold no open handle when it is created,
    forked or pickled, and opens what it needs at its first read in each process.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = Manifest.load(root)

    def __len__(self) -> int:
        return self.manifest.count

    @abstractmethod
    def decode(self, raw: Any) -> Sample:
        """Turn what was read into arrays that the caller owns and may write to.

        Raises:
            DataError: the bytes are damaged.
        """


class Stream(Packed):
    """Packed samples that can only be read in the order of their shards."""

    @property
    @abstractmethod
    def shards(self) -> int:
        """Files that can be read independently of each other; no two hold the same sample."""

    @abstractmethod
    def records(self, shard: int) -> Iterator[Any]:
        """Read one shard from its beginning to its end; what comes is for ``decode`` alone.

        Raises:
            DataError: the shard is missing, truncated, damaged, or does not hold what was packed.
        """


class Reader(Packed, Sequence[Sample]):
    """Random access to packed samples, in two timed stages."""

    @abstractmethod
    def read(self, index: int) -> Any:
        """Bring sample ``index`` from storage into memory that the caller owns; what comes is for ``decode`` alone.

        Raises:
            DataError: it is missing, truncated or damaged.
        """

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"{self.root}: sample {index} of {len(self)}")
        return self.decode(self.read(index))
