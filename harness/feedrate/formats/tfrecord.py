"""TFRecord: TensorFlow's files of framed ``Example`` messages, each with the PNG files of a sample.

A record is its length, that length's CRC, an ``Example`` (features ``id`` and ``image``, a list of the fields' files)
and its CRC: CRC-32C, masked. There is no index, so samples can only be streamed, as TensorFlow does.

The ``tfrecord`` library writes records and parses messages, but the frames are read here: its reader never looks at a
CRC (TensorFlow checks both, and so is it done here: 1 % of decoding), every record that it hands out is a view of one
buffer, which the next overwrites, and its data set yields every record once *in each worker*.

What it does not show: TensorFlow's own pipeline, ``tf.data``, which reads and decodes in C++.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from crc32c import crc32c
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tfrecord.example_pb2 import Example
from tfrecord.writer import TFRecordWriter

from feedrate.formats import Sample
from feedrate.formats._images import Append, RawFiles, ShardedStream, pack_shards

REQUIRES: dict[str, str] = {"tfrecord": "tfrecord", "crc32c": "crc32c", "PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {
    "container": "tfrecord",
    "stores": "png",
    "holds": ("images", "files"),
    "access": ("sequential",),
    "knobs": ("decoder",),
}

_LENGTH = struct.Struct("<QI")
_CRC = struct.Struct("<I")


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as PNG files into TFRecord files."""
    pack_shards(samples, root, "tfrecord", _shard)


@contextmanager
def _shard(path: Path, _kinds: Sequence[str]) -> Iterator[Append]:
    with closing(TFRecordWriter(os.fspath(path))) as writer:
        yield lambda index, files: writer.write({"id": (index, "int"), "image": (list(files), "byte")})


def _masked(data: bytes) -> int:
    crc = crc32c(data)  # rotated and shifted as in tensorflow/core/lib/hash/crc32c.h
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _frames(file: BinaryIO) -> Iterator[bytes]:
    while header := file.read(_LENGTH.size):
        if len(header) < _LENGTH.size:
            raise ValueError("truncated inside a record's length")
        length, crc = _LENGTH.unpack(header)
        if _masked(header[:8]) != crc:
            raise ValueError("wrong CRC of a record's length")
        data, footer = file.read(length), file.read(_CRC.size)
        if len(footer) < _CRC.size:
            raise ValueError("truncated inside a record")
        if _masked(data) != _CRC.unpack(footer)[0]:
            raise ValueError("wrong CRC of a record")
        yield data


class RecordStream(ShardedStream):
    """Streams TFRecord files."""

    kind = "tfrecord"

    def read_shard(self, shard: int) -> Iterator[RawFiles]:
        """Read the records of a file."""
        with self.shard_path(shard).open("rb") as file:
            for frame in _frames(file):
                try:
                    features = Example.FromString(frame).features.feature
                except DecodeError as error:
                    raise ValueError(f"no Example: {error}") from error
                ids = features["id"].int64_list.value
                yield ids[0] if ids else -1, list(features["image"].bytes_list.value)


open = RecordStream
