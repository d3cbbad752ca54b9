"""What formats that store image files share: one encoder, one way to decode, folders of files and shards of a stream.

A sample is one file a field. Such formats hold the same files, byte for byte, and differ in their container alone; the
axis ``decoder`` says what decodes them. Samples that are files of their own (``formats.FILE``) are stored as they are,
and the workload's own code decodes them.

Samples are encoded on all cores, in threads: Pillow releases the GIL while it encodes a PNG file, and a JPEG file
where it writes to a real file instead of a Python object, hence the file in memory (``memfd_create``). Measured on 2
cores at 480 × 480 pixels, PNG on two threads is 1.9 times as fast as on one, JPEG 1.8 times (0.9 into a ``BytesIO``).
An image of few pixels is mostly Python, and two threads are *slower* than one (0.6 times at 16 × 16): such samples are
encoded in the calling thread.
"""

from __future__ import annotations

import errno
import io
import math
import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image as PILImage

from feedrate.formats import (
    FILE,
    LEAST_IMAGE,
    Image,
    Packed,
    Reader,
    ReadOptions,
    Sample,
    Stream,
    decoders,
    map_on_all_cores,
    peeked,
    shapes_of,
)
from feedrate.formats.decoders import JPEG_END, Undecodable
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import STREAM_SHARDS

Result = TypeVar("Result")

COMPRESS_LEVEL = 3
"""zlib level (0 to 9) of Pillow's encoder: the level at which DIV2K's crops are usually stored."""
JPEG_QUALITY = 95
"""Pillow's scale, 0 to 95: the best that it advises."""
THREADED_BYTES = 48 * 48 * 3
"""Pixels of a sample, in bytes, from which on threads are worth it."""
FILES_PER_FOLDER = 1000

Files = Sequence[bytes]
"""The files of a sample's fields."""
RawFiles = tuple[int, Files]
"""A sample's index and its files."""


def encode_png(pixels: Image) -> bytes:
    """Make a PNG file of an image of 1, 3 or 4 channels; an InputError where it has another number."""
    file = io.BytesIO()
    _picture(pixels).save(file, format="PNG", compress_level=COMPRESS_LEVEL)
    return file.getvalue()


def encode_jpeg(pixels: Image) -> bytes:
    """Make a JPEG file, quality 95, with colours at full resolution (4:4:4), of an image of 1 or 3 channels."""
    with os.fdopen(os.memfd_create("jpeg"), "r+b", buffering=0) as file:
        _picture(pixels).save(file, format="JPEG", quality=JPEG_QUALITY, subsampling="4:4:4")
        file.seek(0)
        data = file.read()
    if not data.endswith(JPEG_END):  # Pillow does not notice that less was written than it asked for
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file in memory")
    return data


def _picture(pixels: Image) -> PILImage.Image:
    if pixels.shape[2] not in (1, 3, 4):
        raise InputError(f"an image of {pixels.shape[2]} channels; image files hold 1, 3 or 4: use another format")
    return PILImage.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


@dataclass(frozen=True, slots=True)
class Codec:
    """A kind of image file."""

    name: str
    """As decoders spell it in ``CODECS``."""
    encode: Callable[[Image], bytes]
    holds: Callable[[tuple[int, ...]], bool]
    """Whether a field of a shape is such a file; else its pixels are stored as they are."""

    def kinds(self, shapes: Sequence[tuple[int, ...]]) -> list[str]:
        """Name what the fields of a sample are stored as, the ending of a file's name: the codec, file, or raw."""
        if FILE in shapes:
            return ["file" if shape == FILE else "raw" for shape in shapes]
        return [self.name if self.holds(shape) else "raw" for shape in shapes]

    def files(self, sample: Sample) -> Files:
        """Encode the fields of a sample."""
        kinds = self.kinds(shapes_of(sample))
        encoded = zip(kinds, sample, strict=True)
        return [self.encode(field) if kind == self.name else field.tobytes() for kind, field in encoded]


PNG = Codec("png", encode_png, lambda _: True)
JPEG = Codec("jpeg", encode_jpeg, lambda shape: min(shape[:2]) >= LEAST_IMAGE and shape[2] in (1, 3))
"""A label is no image, and JPEG has no transparency."""


def encode_all(samples: Iterable[Sample]) -> Iterator[Files]:
    """Make PNG files of samples of the same shapes, on all cores, in their order."""
    return _on_all_cores(lambda _, sample: PNG.files(sample), samples)


def _on_all_cores(work: Callable[[int, Sample], Result], samples: Iterable[Sample]) -> Iterator[Result]:
    """Apply a function to each sample and its index, in threads where samples are large enough."""
    first, samples = peeked(samples)
    numbered = enumerate(samples)
    if sum(field.nbytes for field in first) < THREADED_BYTES:
        return starmap(work, numbered)
    return map_on_all_cores(lambda item: work(*item), numbered)


class Encoded(Packed):
    """Packed image files. The decoder is imported at creation, before workers are forked, and never pickled."""

    codec = PNG

    def __init__(self, root: Path, options: ReadOptions) -> None:
        super().__init__(root, options)
        self.kinds = self.codec.kinds(self.manifest.shapes)
        if self.codec.name in self.kinds:
            decoders.load(options.decoder, self.codec.name)

    def decode(self, raw: RawFiles) -> Sample:
        """Decode the files of one sample."""
        index, files = raw
        shapes = self.manifest.shapes
        if len(files) != len(shapes):
            raise self.damage(f"{len(files)} fields, expected {len(shapes)}", index)
        return tuple(self._pixels(index, field, data) for field, data in enumerate(files))

    def _pixels(self, index: int, field: int, data: bytes) -> Image:
        shape, codec = self.manifest.shapes[field], self.codec.name
        try:
            if self.kinds[field] == codec:
                return decoders.load(self.options.decoder, codec)(data, shape)
            if shape != FILE and len(data) != math.prod(shape):
                raise Undecodable(f"{len(data)} bytes, expected {math.prod(shape)}")
            return np.frombuffer(bytearray(data), np.uint8).reshape(shape)
        except Undecodable as problem:
            text = f"{problem}; expected {codec} of shape {shape}"
            raise self.damage(text, index, self.path(index, field)) from problem


class EncodedReader(Encoded, Reader):
    """Random access to image files."""

    @abstractmethod
    def files(self, index: int) -> Files:
        """Read the files of sample ``index``; any of ``failures`` where they are missing or damaged."""

    def read(self, index: int) -> RawFiles:
        """Read the files of sample ``index``."""
        try:
            return index, self.files(index)
        except self.failures as error:
            raise self.damage(error, index) from error


class FolderReader(EncodedReader):
    """A folder of image files, one a field of a sample. It holds no handle: every read opens and closes its files."""

    def path(self, index: int, field: int) -> Path:
        """Name the file of a field of a sample."""
        return _path(self.root, index, field, self.kinds)

    def files(self, index: int) -> Files:
        """Read each field's file."""
        return [self.path(index, field).read_bytes() for field in range(len(self.kinds))]


def _path(root: Path, index: int, field: int, kinds: Sequence[str]) -> Path:
    folder = index // max(1, FILES_PER_FOLDER // len(kinds))
    return root / f"{folder:05d}" / f"{index:08d}-{field}.{kinds[field]}"


def write_files(samples: Iterable[Sample], root: Path, codec: Codec) -> None:
    """Write every field of every sample as a file that ``FolderReader`` finds."""

    def write(index: int, sample: Sample) -> None:
        # In the thread that encoded them: one thread for all holds up a fast encoder.
        kinds = codec.kinds(shapes_of(sample))
        for field, data in enumerate(codec.files(sample)):
            path = _path(root, index, field, kinds)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)

    deque(_on_all_cores(write, samples), maxlen=0)


Append = Callable[[int, Files], object]
"""Appends a sample, its index and its files, to a shard."""


def pack_shards(
    samples: Iterable[Sample],
    root: Path,
    kind: str,
    shard: Callable[[Path, Sequence[str]], AbstractContextManager[Append]],
) -> None:
    """Encode samples as PNG files and deal them out to shards, which ``shard`` opens for writing, given path and kinds.

    Sample i lies in shard i modulo ``STREAM_SHARDS``: nobody knows how many there are when packing begins, and a shard
    that is missing, doubled or in the wrong place is noticed.
    """
    first, samples = peeked(samples)
    kinds = PNG.kinds(shapes_of(first))
    with ExitStack() as opened:
        shards: list[Append] = []
        for index, files in enumerate(encode_all(samples)):
            if index < STREAM_SHARDS:
                shards.append(opened.enter_context(shard(_shard_path(root, index, kind), kinds)))
            shards[index % STREAM_SHARDS](index, files)


def _shard_path(root: Path, shard: int, kind: str) -> Path:
    return root / f"{shard:05d}.{kind}"


class ShardedStream(Encoded, Stream):
    """Streams image files from the shards that ``pack_shards`` wrote."""

    kind: str
    """How a shard's file name ends."""

    @property
    def shards(self) -> int:
        """Files that can be read independently of each other."""
        return min(STREAM_SHARDS, len(self))

    def shard_path(self, shard: int) -> Path:
        """Name a shard's file, or its first."""
        return _shard_path(self.root, shard, self.kind)

    def path(self, index: int, field: int) -> Path:  # noqa: ARG002 - all are in one
        """Name the shard in which a sample lies."""
        return self.shard_path(index % STREAM_SHARDS)

    @abstractmethod
    def read_shard(self, shard: int) -> Iterator[RawFiles]:
        """Read a shard; an OSError or ValueError says what is wrong with it."""

    def records(self, shard: int) -> Iterator[RawFiles]:
        """Read one shard, which must hold the samples that were packed into it."""
        due = iter(range(shard, len(self), STREAM_SHARDS))
        try:
            for record in self.read_shard(shard):
                expected = next(due, "the end")
                if record[0] != expected:
                    raise ValueError(f"sample {record[0]} lies where {expected} should be")
                yield record
            if (missing := next(due, None)) is not None:
                raise ValueError(f"ends before sample {missing}")
        except (OSError, ValueError) as error:
            raise self.damage(error, path=self.shard_path(shard)) from error
