"""Samples dealt out to a fixed number of files, which is how formats that can only be streamed are divided.

Sample i lies in shard i modulo ``STREAM_SHARDS``, at place i divided by it: shards are equally long whatever the number
of samples, which nobody knows when packing begins, and where a sample must be is known without an index, so that one
that is missing, doubled or in the wrong place is noticed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Protocol, TypeVar

from feedrate.formats._access import damaged
from feedrate.formats._encoded import EncodedRaw, EncodedStream
from feedrate.schema.plugins import STREAM_SHARDS

Item = TypeVar("Item")
Record_contra = TypeVar("Record_contra", contravariant=True)


class Writer(Protocol[Record_contra]):
    """Writes one shard."""

    def write(self, index: int, record: Record_contra, /) -> None:
        """Append a sample."""

    def close(self) -> None:
        """Finish the shard."""


def shard_path(root: Path, shard: int, kind: str) -> Path:
    """Name a shard's file."""
    return root / f"{shard:05d}.{kind}"


def deal(records: Iterable[Item], make: Callable[[int], Writer[Item]]) -> None:
    """Write samples into shards, as many as there are samples for, at most ``STREAM_SHARDS``."""
    with ExitStack() as files:
        writers: list[Writer[Item]] = []
        for index, record in enumerate(records):
            if index < STREAM_SHARDS:
                writers.append(files.enter_context(closing(make(index))))
            writers[index % STREAM_SHARDS].write(index, record)


class ShardedStream(EncodedStream):
    """Streams shards that ``deal`` wrote."""

    kind: str
    """How a shard's file name ends."""

    @property
    def shards(self) -> int:
        """Files that can be read independently of each other."""
        return min(STREAM_SHARDS, len(self))

    def path(self, index: int, field: int) -> Path:  # noqa: ARG002 - all are in one
        """Name the shard in which a sample lies."""
        return shard_path(self.root, index % STREAM_SHARDS, self.kind)

    @abstractmethod
    def _read(self, path: Path) -> Iterator[EncodedRaw]:
        """Read a file from its beginning to its end."""

    def records(self, shard: int) -> Iterator[EncodedRaw]:
        """Read one shard from its beginning to its end.

        Yields:
            Each sample's index and its fields' files, as bytes.

        Raises:
            DataError: the shard is missing, truncated, damaged, or does not hold the samples that were packed.
        """
        path = shard_path(self.root, shard, self.kind)
        due = iter(range(shard, len(self), STREAM_SHARDS))
        try:
            for record in self._read(path):
                wanted = next(due, "the end")
                if record[0] != wanted:
                    raise damaged(path, f"sample {record[0]} lies where {wanted} should be", self.root)
                yield record
        except OSError as error:
            raise damaged(path, error.strerror or str(error), self.root) from error
        except ValueError as error:
            raise damaged(path, f"damaged ({error})", self.root) from error
        for missing in due:
            raise damaged(path, f"truncated, ends before sample {missing}", self.root)
