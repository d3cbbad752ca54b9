"""Loaders: packed samples → batches. One file a loader, found by its name, imported only when used.

A loader module has a docstring (what it is, its pitfalls), ``REQUIRES``, ``TRAITS``
(``feedrate.schema.plugins.LoaderTraits``), and ``build(dataset, collate, batches, options)``: an iterable of ``Batch``,
mostly a ``Loader``. ``dataset`` is indexed by sample, ``collate`` makes a ``Batch`` of a list of its items, ``batches``
yields the indices of each batch, possibly without end. Each iteration asks ``batches`` anew, and delivers them in their
order. What a sample raises is raised in the training process, in the turn of its batch, with its class. When an
iterator is dropped, no thread, process or memory of it stays. A loader other than ``torch`` gets one worker at least.
Of streams, which ``torch`` takes, it gets those that its trait ``streams`` names, without ``batches``: it reads the
files by itself, shuffles as it can, and hands what it read to ``dataset.one_pass``. One that decodes by itself
(``decodes``) makes of image files what the workload's crops are, and stamps that it does not know how long that took.

A step timer sees only that a batch was late. The dataset therefore stamps read, decode and transform of every sample
and the collate function the batch. The four sums, when the batch was begun and when it was whole, and who prepared it
travel with the batch as 52 inline bytes (one more tensor would cost 340 to 420 us a batch, bytes cost 10 to 70).
"""

from __future__ import annotations

import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, count, islice
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

# Never `import torch` here: once the plug-in of that name is loaded, the package's `torch` is the plug-in.
from torch import Tensor, get_num_threads, set_num_threads
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from feedrate.formats import Packed, Reader, Sample, Stream

__all__ = ["NOBODY", "STAMPS", "Batch", "Batches", "Collate", "Fields", "LoadOptions", "Loader", "Pooled", "Transform"]
__all__ += ["StampedCollate", "StampedDataset", "StampedStream", "copies", "untimed"]

Fields = tuple[Tensor, ...]
Transform = Callable[[Sample], Fields]
"""Makes of one sample what a collation takes: tensors, or for ``collate = fast`` the arrays themselves."""
Collate = Callable[[list[Fields]], Any]
"""Makes the tensors of a batch, one a field, out of its samples."""
Prepare = Callable[[list[int]], "Batch"]
"""Makes the batch of some samples."""
STAMPS = struct.Struct("<6qi")
"""Of one batch: nanoseconds of read, decode, transform, collate; when its first sample was asked for and when it was
whole, both by ``perf_counter_ns``, which is one clock for all processes; the worker that prepared it, or ``NOBODY``."""
NOBODY = -1
"""In place of a worker: the training process prepared the batch itself."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How samples are loaded: the axes that are knobs of loaders. A loader ignores those that it has not."""

    batch_size: int
    num_workers: int = 0
    prefetch_factor: int = 2
    pin_memory: bool = False
    start_method: str = "fork"
    persistent_workers: bool = False
    patch_size: int = 64
    """Of images, where the loader crops them by itself."""

    def of_processes(self) -> dict[str, Any]:
        """The arguments that PyTorch's DataLoader takes, and those of others that are built on it."""
        names = ("num_workers", "pin_memory", *(["prefetch_factor"] if self.num_workers else []))
        return {name: getattr(self, name) for name in names}


class Batch(NamedTuple):
    """What the loader delivers; a named tuple, so that the pinning thread pins its tensors and leaves the bytes."""

    fields: Fields
    """The workload's tensors, each batch × channels × height × width."""
    stamps: bytes
    """``STAMPS``."""

    def pinned(self) -> Batch:
        """Copy the tensors to page-locked memory."""
        return self._replace(fields=tuple(field.pin_memory() for field in self.fields))


def untimed() -> bytes:
    """``STAMPS`` of a batch that is whole now, where a library does not say how long a stage took."""
    now = time.perf_counter_ns()
    return STAMPS.pack(0, 0, 0, 0, now, now, NOBODY)


class Stamped:
    """Packed samples whose reading, decoding and transforming are added up until a batch is collated."""

    def __init__(self, packed: Packed, transform: Transform) -> None:
        self._packed = packed
        self._transform = transform
        self.spent = [0, 0, 0]
        """Nanoseconds of read, decode, transform since the last batch."""
        self.begun = 0
        """When the first sample since the last batch was asked for; 0 before that."""

    def __len__(self) -> int:
        return len(self._packed)

    def _fields(self, raw: Any, begun: int) -> Fields:
        """Decode and transform what was read since a moment, and add all three to the account."""
        now = time.perf_counter_ns
        read = now()
        self.begun = self.begun or begun
        sample = self._packed.decode(raw)
        decoded = now()
        fields = self._transform(sample)
        spent = self.spent
        spent[0] += read - begun
        spent[1] += decoded - read
        spent[2] += now() - decoded
        return fields


class StampedDataset(Stamped, Dataset[Fields]):
    """Map-style access to packed samples."""

    def __init__(self, reader: Reader, transform: Transform) -> None:
        super().__init__(reader, transform)
        self._reader = reader

    def __getitem__(self, index: int) -> Fields:
        begun = time.perf_counter_ns()
        return self._fields(self._reader.read(index), begun)


class StampedStream(Stamped, IterableDataset[Fields]):
    """Samples streamed from shards, each worker its own share of them.

    Every pass takes the shards in a new seeded order, alike for all workers, of which each has every n-th: a pass holds
    each sample once. Where there is a shuffle buffer, a worker draws the next sample from it at random.
    """

    def __init__(self, stream: Stream, transform: Transform, *, seed: int, buffer: int, endless: bool) -> None:
        super().__init__(stream, transform)
        self._stream = stream
        self.root, self.shards = stream.root, stream.shards
        """The folder of the shards, for loaders that read them by themselves, and how many they are."""
        self.seed = seed
        """Of every order that is drawn."""
        self.buffer = buffer
        """Samples of which the next is drawn; 0 takes them as they lie in their shard."""
        self.endless = endless
        """Whether pass follows pass."""
        self._passes = 0

    def one_pass(self, records: Iterator[Any]) -> Iterator[Fields]:
        """Make samples of the records that such a loader reads in a pass; to wait for one counts as reading it."""
        self._stream.begin(self._passes)
        self._passes += 1
        return self._timed(records)

    def __iter__(self) -> Iterator[Fields]:
        return self._timed(self._records())

    def _timed(self, records: Iterator[Any]) -> Iterator[Fields]:
        while True:
            begun = time.perf_counter_ns()
            if (record := next(records, None)) is None:
                return
            yield self._fields(record, begun)

    def _records(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        random = np.random.default_rng((self.seed, worker))
        for epoch in count() if self.endless else (0,):
            self._stream.begin(epoch)
            order = np.random.default_rng((self.seed, epoch)).permutation(self.shards)[worker::workers]
            records = chain.from_iterable(self._stream.records(shard) for shard in order.tolist())
            yield from _shuffled(records, self.buffer, random) if self.buffer else records


def _shuffled(records: Iterator[Any], size: int, random: np.random.Generator) -> Iterator[Any]:
    """Hand out records in an order that is random within reach of a buffer."""
    buffer = list(islice(records, size))
    for record in records:
        slot = int(random.integers(len(buffer)))
        buffer[slot], drawn = record, buffer[slot]
        yield drawn
    for slot in random.permutation(len(buffer)).tolist():
        yield buffer[slot]


class StampedCollate:
    """Collates, by PyTorch's default unless told otherwise, and closes the account that it shares with the dataset."""

    def __init__(self, dataset: Stamped, collate: Collate = default_collate) -> None:
        self._dataset = dataset
        self._collate = collate
        self.worker = NOBODY
        """Number of the thread that has this copy; a worker process knows its own."""

    def __call__(self, samples: list[Fields]) -> Batch:
        """Collate one batch."""
        begun = time.perf_counter_ns()
        fields = tuple(self._collate(samples))
        ended = time.perf_counter_ns()
        info, dataset = get_worker_info(), self._dataset
        worker = info.id if info else self.worker
        stamps = STAMPS.pack(*dataset.spent, ended - begun, dataset.begun, ended, worker)
        dataset.spent[:] = 0, 0, 0
        dataset.begun = 0
        return Batch(fields, stamps)


@dataclass
class Loader(ABC):
    """What most loaders are: each iteration builds what delivers the batches, and ends it."""

    dataset: Any
    collate: StampedCollate
    batches: Iterable[list[int]]
    options: LoadOptions

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]: ...


_OPENING = threading.Lock()
"""Held for a copy's first batch, in which files are opened: LMDB refuses to open one twice at a time."""


def copies(loader: Loader) -> list[Prepare]:
    """Make for each worker that is a thread what prepares its batches, with handles and an account of its own."""
    return [_copy(loader, worker) for worker in range(loader.options.num_workers)]


def _copy(loader: Loader, worker: int) -> Prepare:
    dataset, collate = deepcopy((loader.dataset, loader.collate))
    collate.worker = worker
    opening: AbstractContextManager[Any] = _OPENING

    def prepare(indices: list[int]) -> Batch:
        nonlocal opening
        with opening:
            batch = collate([dataset[index] for index in indices])
        opening = nullcontext()  # it is open, in later epochs too
        return batch.pinned() if loader.options.pin_memory else batch

    return prepare


@dataclass
class Pooled(Loader):
    """A loader whose threads are another library's: one takes a copy for a batch, so that files stay open."""

    def __post_init__(self) -> None:
        self._idle: SimpleQueue[Prepare] = SimpleQueue()
        for prepare in copies(self):
            self._idle.put(prepare)

    @property
    def ahead(self) -> int:
        """Batches that wait beside those which are worked on; one at least, as some libraries take 0 for no limit."""
        return max(1, self.options.num_workers * (self.options.prefetch_factor - 1))

    def prepare(self, indices: list[int]) -> Batch:
        """Make the batch of some samples, with one thread of computation, as PyTorch's worker processes do."""
        if get_num_threads() > 1:
            set_num_threads(1)
        prepare = self._idle.get()
        try:
            return prepare(indices)
        finally:
            self._idle.put(prepare)


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches of indices; incomplete ones are dropped.

    Without end, so that no epoch boundary falls inside a window: one pass over the set after the other, in each of
    which every sample comes once. Or one pass, for a trial that must not read a sample twice. Where visits are told
    apart, indices count on from pass to pass.

    A rank gets every n-th sample of each batch, as ``DistributedSampler`` deals them out.
    """

    count: int
    batch_size: int
    """Of all ranks together."""
    seed: int
    shuffled: bool = True
    endless: bool = True
    rank: int = 0
    ranks: int = 1
    visits: bool = False
    """Whether sample i of the pass e is e × count + i."""

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng(self.seed)
        end = self.count - self.count % self.batch_size
        for epoch in count():
            order = generator.permutation(self.count) if self.shuffled else np.arange(self.count)
            order += epoch * self.count * self.visits
            for start in range(0, end, self.batch_size):
                yield order[start + self.rank : start + self.batch_size : self.ranks].tolist()
            if not self.endless:
                return
