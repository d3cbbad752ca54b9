"""LitData: chunks of PNG files, written and read with the ``litdata`` library.

A sample is its index and a leaf of bytes a field. Chunks are made by so many writers as a stream has shards, as
``litdata.optimize`` has workers; here a chunk is of 4 MB, as all writers fill theirs at once. The loader ``litdata``
streams them as the library means to; PyTorch's takes the samples of a writer one after the other.

Pitfalls: an index file is needed beside the chunks; there is no checksum; ``import litdata`` brings clients of clouds.
https://github.com/Lightning-AI/litData#speed-up-model-training
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from litdata import StreamingDataset
from litdata.streaming.writer import BinaryWriter

from feedrate.formats import Sample
from feedrate.formats._images import Append, Files, RawFiles, ShardedStream, pack_shards
from feedrate.schema.plugins import STREAM_SHARDS

REQUIRES: dict[str, str] = {"litdata": "litdata", "PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {
    "container": "litdata",
    "stores": "png",
    "holds": ("images", "files"),
    "access": ("sequential",),
    "knobs": ("decoder",),
}
CHUNK_BYTES = 4_000_000


class _Writer(BinaryWriter):  # type: ignore[misc]
    """One of several that write into a folder."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__(str(folder), chunk_bytes=CHUNK_BYTES)
        self._rank = rank


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as PNG files into chunks, and their index."""
    writers: list[_Writer] = []

    @contextmanager
    def shard(path: Path, _kinds: Sequence[str]) -> Iterator[Append]:
        writer = _Writer(path.parent, len(writers))
        writers.append(writer)
        written = 0

        def append(index: int, files: Files) -> None:
            nonlocal written
            writer[written] = (index, *files)
            written += 1

        yield append
        writer.done()

    pack_shards(samples, root, "bin", shard)
    if writers:
        writers[0].merge(len(writers))


class ChunkStream(ShardedStream):
    """Takes the samples of a writer by their place among all."""

    def open_files(self) -> StreamingDataset:
        """Open the index."""
        return StreamingDataset(str(self.root))

    def shard_path(self, shard: int) -> Path:
        """Name a writer's first chunk."""
        return self.root / f"chunk-{shard}-0.bin"

    def read_shard(self, shard: int) -> Iterator[RawFiles]:
        """Read what a writer wrote."""
        counts = [len(range(writer, len(self), STREAM_SHARDS)) for writer in range(shard + 1)]
        rows = self.opened()
        for position in range(sum(counts[:-1]), sum(counts)):
            index, *files = rows[position]
            yield index, [bytes(file) for file in files]


open = ChunkStream
