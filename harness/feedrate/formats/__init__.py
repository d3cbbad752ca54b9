"""Storage formats: samples ↔ bytes on disk. One file a format, found by its name, imported only when used.

A format module has a docstring (what it is, its pitfalls), ``REQUIRES`` (import name → what pip installs), ``VERSION``
(raised when the bytes on disk change), ``TRAITS`` (``feedrate.schema.plugins.Traits``), and

- ``pack(samples, root)``: writes samples, all of the same shapes (one field may be a file of any size, where ``TRAITS``
  says so), into the empty folder ``root`` and holds few of them at a time. It raises ``InputError`` where the format
  cannot hold them and ``OSError`` where the disk cannot take them;
- ``open(root, options)``: a ``Reader`` over what was packed, or a ``Stream`` where samples can only be read in order.
  It raises ``DataError`` where there is no readable manifest and ``InputError`` where the decoder cannot be used.

Packing is made atomic, counted, hashed and described (``manifest.json``) around ``pack`` by ``feedrate.trial.prepare``,
which also finds changed bytes of raw pixels: of those, no format here has a checksum.
"""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from feedrate.schema.errors import DataError, InputError

__all__ = ["FILE", "LEAST_IMAGE", "Image", "Manifest", "Packed", "PixelReader", "ReadOptions", "Reader", "Sample"]
__all__ += ["Stream", "_images", "decoders", "memmap", "turboloader"]  # the underscore says that a file is no plug-in

Item = TypeVar("Item")
Result = TypeVar("Result")

Image = NDArray[np.uint8]
"""Pixels, height × width × channels, uint8."""
LEAST_IMAGE = 8
"""A field with fewer rows or columns, such as a label, is no image: what is lossy stores it as it is."""
FILE = (-1,)
"""Shape of a field that is a file as it is, uint8 and one-dimensional: each is as long as it is."""
Sample = tuple[Image, ...]
"""One sample: its fields in the workload's order; (input, target) for super-resolution."""
Buffer: TypeAlias = NDArray[np.uint8] | memoryview
"""Writable bytes, contiguous and one-dimensional."""
RawPixels = tuple[int, NDArray[np.uint8]]
"""A sample's index and its pixels."""
LOOK_AHEAD = 2
"""Items that wait or are worked on, for each core: all that is held in memory, however many there are."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a packed folder holds; written last, so that a folder with one is whole."""

    count: int
    """Samples."""
    shapes: tuple[tuple[int, ...], ...]
    """Shape of each field of a sample, or ``FILE``; all samples of a set have the same."""
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
        """Read ``root/manifest.json``; a DataError where there is none, or it cannot be understood."""
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


DEFAULTS = ReadOptions()


class Packed(ABC):
    """What ``pack`` wrote, opened.

    It is created in the training process and used in its workers: it holds no open handle when it is created, forked or
    pickled, and opens what it needs at its first read in each process.
    """

    file = ""
    """In which all samples lie, where it is one."""
    failures: tuple[type[Exception], ...] = (OSError, ValueError)
    """What opening and reading raise where files are damaged."""
    _handle: Any = None
    _pid = -1

    def __init__(self, root: Path, options: ReadOptions = DEFAULTS) -> None:
        self.root = root
        self.options = options
        self.manifest = Manifest.load(root)

    def __len__(self) -> int:
        return self.manifest.count

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_handle", "_pid")}

    def open_files(self) -> Any:
        """Open what lies below ``root``; any of ``failures`` where that cannot be used."""
        raise NotImplementedError

    def opened(self) -> Any:
        """Give what ``open_files`` opened in this process.

        What was inherited by a fork is dropped unused. It closes when its owner is dropped, as handles do.
        """
        if self._pid != os.getpid():
            self._handle = None  # before the next is opened: some libraries refuse to open a file twice
            try:
                self._handle = self.open_files()
            except self.failures as error:
                raise self.damage(error) from error
            self._pid = os.getpid()
        return self._handle

    def path(self, index: int, field: int) -> Path:  # noqa: ARG002 - most containers are one file
        """Name the file in which a field of a sample lies, for errors."""
        return self.root / self.file

    def damage(self, problem: str | Exception, index: int | None = None, path: Path | None = None) -> DataError:
        """Make the error for a file, or one sample of it, that cannot be used."""
        text = getattr(problem, "strerror", None) or (problem if isinstance(problem, str) else f"damaged ({problem})")
        named = getattr(problem, "filename", None)
        path = path or (Path(named) if named else self.path(index or 0, 0))
        sample = "" if index is None else f"sample {index}: "
        return DataError(f"{path}: {sample}{text}; delete {self.root} and run again")

    @abstractmethod
    def decode(self, raw: Any) -> Sample:
        """Turn what was read into arrays that the caller owns and may write to; a DataError where it is damaged."""


class Stream(Packed):
    """Packed samples that can only be read in the order of their shards."""

    @property
    @abstractmethod
    def shards(self) -> int:
        """Files that can be read independently of each other; no two hold the same sample."""

    def begin(self, epoch: int) -> None:
        """Note that another pass over the samples begins, counted from 0."""

    @abstractmethod
    def records(self, shard: int) -> Iterator[Any]:
        """Read one shard from its beginning to its end; a DataError where it does not hold what was packed."""


class Reader(Packed, Sequence[Sample]):
    """Random access to packed samples, in two timed stages."""

    @abstractmethod
    def read(self, index: int) -> Any:
        """Bring sample ``index`` from storage into memory that the caller owns; a DataError where it is damaged."""

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(f"{self.root}: sample {index} of {len(self)}")
        return self.decode(self.read(index))


class PixelReader(Reader):
    """Random access to samples that are stored as pixels, those of all fields one after the other, without a header."""

    def __init__(self, root: Path, options: ReadOptions = DEFAULTS) -> None:
        super().__init__(root, options)
        shapes = self.manifest.shapes
        self.size = 0 if FILE in shapes else sum(map(math.prod, shapes))
        """Bytes of a sample; 0 where it holds a file."""

    @abstractmethod
    def copy(self, index: int, buffer: Buffer) -> None:
        """Copy every byte of sample ``index`` into ``size`` bytes; any of ``failures`` where that cannot be done."""

    def read_into(self, index: int, buffer: Buffer) -> None:
        """Copy every byte of sample ``index`` from storage into the caller's memory, ``size`` bytes.

        Raises:
            DataError: the sample is missing, truncated, damaged or of another length than the buffer.
        """
        try:
            if len(buffer) != self.size:
                raise ValueError(f"{self.size} bytes, expected {len(buffer)}")
            self.copy(index, buffer)
        except self.failures as error:
            raise self.damage(error, index) from error

    def read(self, index: int) -> RawPixels:
        """Read sample ``index`` into new memory."""
        pixels = np.empty(self.size, np.uint8)
        self.read_into(index, pixels)
        return index, pixels

    def decode(self, raw: RawPixels) -> Sample:
        """Cut pixels into fields, without a copy."""
        return cut(raw[1], self.manifest.shapes)


class MappedReader(PixelReader):
    """Samples that lie in a memory map."""

    @abstractmethod
    def view(self, index: int) -> memoryview:
        """Find sample ``index``, whose bytes are to be copied at once."""

    def copy(self, index: int, buffer: Buffer) -> None:
        """Copy it out of the map; a ValueError where it has another size."""
        buffer[:] = self.view(index)

    def read(self, index: int) -> RawPixels:
        """Read sample ``index`` into new memory, as much as it takes where it is a file."""
        if self.size:
            return super().read(index)
        try:
            return index, np.array(self.view(index), np.uint8)
        except self.failures as error:
            raise self.damage(error, index) from error


def shapes_of(sample: Sample) -> tuple[tuple[int, ...], ...]:
    """Give the shapes of a sample's fields as a manifest has them."""
    return tuple(FILE if field.ndim == 1 else field.shape for field in sample)


def peeked(samples: Iterable[Sample]) -> tuple[Sample, Iterator[Sample]]:
    """Give the first sample, empty where there is none, and all of them."""
    drawn = iter(samples)
    first = next(drawn, ())
    return first, chain((first,) if first else (), drawn)


def flat(sample: Sample) -> memoryview:
    """Copy the pixels of all fields of a sample, one after the other."""
    return np.concatenate([field.reshape(-1) for field in sample]).data


def flattened(samples: Iterable[Sample]) -> tuple[int, Iterator[memoryview]]:
    """Give the size of a sample in bytes and all samples as ``flat`` makes them; an InputError where there are none."""
    values = map(flat, samples)
    first = next(values, None)
    if first is None:
        raise InputError("there are no samples to pack")
    return len(first), chain((first,), values)


def batches(values: Iterator[memoryview], count: int) -> Iterator[tuple[int, bytes]]:
    """Join up to ``count`` samples at a time: how many there are, and their pixels."""
    while batch := list(islice(values, count)):
        yield len(batch), b"".join(batch)


def cut(pixels: NDArray[np.uint8], shapes: Sequence[tuple[int, ...]]) -> Sample:
    """Make fields of the given shapes out of the pixels of a sample: views. A ValueError where their sizes differ.

    A file, of which there is one at most, takes what the other fields leave.
    """
    fields, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        if shape == FILE:
            size = len(pixels) - sum(math.prod(other) for other in shapes if other != FILE)
        end = start + size
        fields.append(pixels[start:end].reshape(shape))
        start = end
    if start != len(pixels):
        raise ValueError(f"{len(pixels)} bytes, expected {start}")
    return tuple(fields)


def map_on_all_cores(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Apply a function that releases the GIL in a thread for each core that may be used; results keep their order."""
    cores = len(os.sched_getaffinity(0))
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(cores)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > LOOK_AHEAD * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
