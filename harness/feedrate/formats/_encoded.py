"""What formats that store image files share: a sample is its fields' files, decoded by the axis ``decoder``.

Such formats hold the same files, byte for byte, and differ in their container alone.

A folder of image files, one a field of a sample: what ``png`` and ``jpeg`` share.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import numpy as np

from feedrate.formats import Image, Packed, Reader, ReadOptions, Sample, Stream
from feedrate.formats._access import damaged
from feedrate.formats._encoding import Codec, files_of, on_all_cores
from feedrate.formats.decoders import Undecodable
from feedrate.schema import plugins
from feedrate.schema.errors import InputError

EncodedRaw = tuple[int, Sequence[bytes]]
"""A sample's index and its fields' files."""


@cache
def _decoder(name: str, codec: str) -> Callable[[bytes, tuple[int, ...]], Image]:
    """Import a decoder, once a process."""
    module: ModuleType = plugins.load("feedrate.formats.decoders", name)
    if codec not in module.CODECS:
        raise InputError(f"decoder: '{name}' does not decode {codec}, only {', '.join(module.CODECS)}; choose another")
    decode: Callable[[bytes, tuple[int, ...]], Image] = module.decode
    return decode


class Encoded(Packed):
    """Packed image files. The decoder is imported at creation, before workers are forked, and never pickled."""

    codec: Codec
    """How files were encoded, and so which fields are images; of the class, as no pickle holds it."""

    def __init__(self, root: Path, options: ReadOptions) -> None:
        super().__init__(root)
        self._decoder = options.decoder
        _decoder(self._decoder, self.codec.name)

    @abstractmethod
    def path(self, index: int, field: int) -> Path:
        """Name the file in which a field of a sample lies, for errors."""

    def decode(self, raw: EncodedRaw) -> Sample:
        """Decode the files of one sample.

        Args:
            raw: what was read.

        Returns:
            uint8 arrays, height × width × channels, writable and owning their memory.

        Raises:
            DataError: a file is truncated, damaged, or of another shape than the manifest says.
        """
        index, files = raw
        shapes = self.manifest.shapes
        if len(files) != len(shapes):
            path = self.path(index, 0)
            raise damaged(path, f"{len(files)} fields, expected {len(shapes)}", self.root, index)
        return tuple(self._pixels(index, field, data) for field, data in enumerate(files))

    def _pixels(self, index: int, field: int, data: bytes) -> Image:
        shape = self.manifest.shapes[field]
        try:
            if self.codec.holds(shape):
                return _decoder(self._decoder, self.codec.name)(data, shape)
            if len(data) != math.prod(shape):
                raise Undecodable(f"{len(data)} bytes, expected {math.prod(shape)}")
            return np.frombuffer(bytearray(data), np.uint8).reshape(shape)
        except Undecodable as problem:
            what = f"{problem}; expected {self.codec.name} of shape {shape}"
            raise damaged(self.path(index, field), what, self.root, index) from problem


class EncodedReader(Encoded, Reader):
    """Random access to packed image files."""


class EncodedStream(Encoded, Stream):
    """Packed image files that can only be read in the order of their shards."""


FILES_PER_FOLDER = 1000


def _path(root: Path, index: int, field: int, fields: int, kind: str) -> Path:
    folder = index // max(1, FILES_PER_FOLDER // fields)
    return root / f"{folder:05d}" / f"{index:08d}-{field}.{kind}"


def write_files(samples: Iterable[Sample], root: Path, codec: Codec) -> None:
    """Write every field of every sample as a file.

    Raises:
        InputError: a field has a number of channels that image files cannot hold.
        OSError: a file cannot be written.
    """
    for _ in on_all_cores(partial(_write, root, codec), samples):
        pass


def _write(root: Path, codec: Codec, index: int, sample: Sample) -> None:
    """Encode a sample and write its files where it was encoded: on one thread, that holds up a fast encoder."""
    files = files_of(sample, codec)
    for field, (kind, data) in enumerate(files):
        path = _path(root, index, field, len(files), kind)
        try:
            path.write_bytes(data)
        except FileNotFoundError:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)


class FolderReader(EncodedReader):
    """Holds no handle at all: every read opens and closes its files."""

    def path(self, index: int, field: int) -> Path:
        """Name the file of a field of a sample."""
        shapes = self.manifest.shapes
        return _path(self.root, index, field, len(shapes), self.codec.kind(shapes[field]))

    def read(self, index: int) -> EncodedRaw:
        """Read the files of sample ``index``.

        Returns:
            The index and each field's file, as bytes.

        Raises:
            DataError: a file is missing or cannot be read.
        """
        try:
            return index, [self.path(index, field).read_bytes() for field in range(len(self.manifest.shapes))]
        except OSError as error:
            raise damaged(Path(error.filename), f"{error.strerror}", self.root, index) from error
