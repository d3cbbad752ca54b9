"""What formats that store image files share: a sample is its fields' files, decoded by the axis ``decoder``.

Such formats hold the same files, byte for byte, and differ in their container alone.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np

from harness import registry
from harness.errors import InputError
from harness.formats import Image, Packed, Reader, ReadOptions, Sample, Stream
from harness.formats._access import damaged
from harness.formats._encoding import Codec
from harness.formats.decoders import Undecodable

EncodedRaw = tuple[int, Sequence[bytes]]
"""A sample's index and its fields' files."""


@cache
def _decoder(name: str, codec: str) -> Callable[[bytes, tuple[int, ...]], Image]:
    """Import a decoder, once a process.

    Raises:
        InputError: there is no such decoder, it is not installed, or it does not decode this codec.
    """
    module: ModuleType = registry.load("harness.formats.decoders", name)
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
