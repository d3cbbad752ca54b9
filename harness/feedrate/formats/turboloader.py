"""TurboLoader's archive: one tar file of JPEG files, which its loader maps into memory and indexes.

It is written by Python's ``tarfile``, as the library's own converter does. An image is ``00000012.0.jpg`` whatever it
is, as the library takes no file of another name for one; its class lies beside it (``00000012.1.raw``). The loader
``turboloader`` reads the archive as the library means to; PyTorch's takes samples by their place in it.

Pitfalls: tar has checksums for its headers and none for the data; what is no JPEG file, the loader refuses.
https://github.com/ALJainProjects/TurboLoader
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from feedrate.formats import Sample
from feedrate.formats._images import Append, Files, RawFiles, ShardedStream, pack_shards
from feedrate.schema.plugins import STREAM_SHARDS

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "tar", "stores": "files", "holds": ("files",), "access": ("sequential",)}
NAME = "samples.tar"


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples into the archive, in their order."""
    with tarfile.open(root / NAME, "w", format=tarfile.USTAR_FORMAT) as tar:

        @contextmanager
        def shard(_path: Path, kinds: Sequence[str]) -> Iterator[Append]:
            def append(index: int, files: Files) -> None:
                for field, (kind, content) in enumerate(zip(kinds, files, strict=True)):
                    member = tarfile.TarInfo(f"{index:08d}.{field}.{'jpg' if kind == 'file' else kind}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                tar.members.clear()  # type: ignore[attr-defined]

            yield append

        pack_shards(samples, root, "tar", shard)


class Archive:
    """An archive, open for reading any of its files by their place."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with tarfile.open(path, "r:") as tar:
                self._members = [(member.offset_data, member.size) for member in tar]
        except tarfile.TarError as error:
            raise ValueError(str(error)) from error

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def __len__(self) -> int:
        return len(self._members)

    def read(self, position: int) -> bytes:
        """Read a file whole."""
        offset, size = self._members[position]
        if len(content := os.pread(self._descriptor, size, offset)) < size:
            raise ValueError("truncated")
        return content


class ArchiveStream(ShardedStream):
    """Takes every n-th sample of the archive."""

    def shard_path(self, shard: int) -> Path:  # noqa: ARG002 - all are in one
        """Name the archive."""
        return self.root / NAME

    def open_files(self) -> Archive:
        """Open the archive."""
        return Archive(self.root / NAME)

    def read_shard(self, shard: int) -> Iterator[RawFiles]:
        """Read samples from one on, as many apart as there are shards."""
        archive, fields = self.opened(), len(self.kinds)
        if len(archive) != len(self) * fields:
            raise ValueError(f"holds {len(archive)} files; expected {len(self) * fields}")
        for index in range(shard, len(self), STREAM_SHARDS):
            yield index, [archive.read(index * fields + field) for field in range(fields)]


open = ArchiveStream
