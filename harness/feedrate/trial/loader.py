"""The loaders that are measured, of processes and of threads, and the workers' own account of what they do.

A step timer sees only that a batch was late. The dataset therefore stamps read, decode and transform of every sample
and the collate function the batch. The four sums, when the batch was begun and when it was whole, and who prepared it
travel with the batch as 52 inline bytes (one more tensor would cost 340 to 420 us a batch, bytes cost 10 to 70).
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from multiprocessing import parent_process
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

from feedrate.formats import Packed, Reader, Sample, Stream
from feedrate.machine.linux import die_with_parent

Fields = tuple[torch.Tensor, ...]
Transform = Callable[[Sample], Fields]
"""Makes of one sample what a collation takes: tensors, or for ``collate = fast`` the arrays themselves."""
Collate = Callable[[list[Fields]], Any]
"""Makes the tensors of a batch, one a field, out of its samples."""
STAMPS = struct.Struct("<6qi")
"""Of one batch: nanoseconds of read, decode, transform, collate; when its first sample was asked for and when it was
whole, both by ``perf_counter_ns``, which is one clock for all processes; the worker that prepared it, or ``NOBODY``."""
NOBODY = -1
"""In place of a worker: the training process prepared the batch itself."""
_OPENING = threading.Lock()
"""Held for a dataset's first batch, in which files are opened: LMDB refuses to open one twice at a time."""


class Batch(NamedTuple):
    """What the loader delivers; a named tuple, so that the pinning thread pins its tensors and leaves the bytes."""

    fields: Fields
    """The workload's tensors, each batch × channels × height × width."""
    stamps: bytes
    """``STAMPS``."""


Prepare = Callable[[list[int]], Batch]
"""Makes a batch out of its samples' indices."""


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
        self._seed = seed
        self._buffer = buffer
        self._endless = endless

    @property
    def shards(self) -> int:
        """Files that workers divide among them."""
        return self._stream.shards

    def __iter__(self) -> Iterator[Fields]:
        records = self._records()
        while True:
            begun = time.perf_counter_ns()
            raw = next(records, None)
            if raw is None:
                return
            yield self._fields(raw, begun)

    def _records(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        random = np.random.default_rng((self._seed, worker))
        for epoch in count() if self._endless else (0,):
            self._stream.begin(epoch)
            order = np.random.default_rng((self._seed, epoch)).permutation(self._stream.shards)[worker::workers]
            records = chain.from_iterable(self._stream.records(shard) for shard in order.tolist())
            yield from _shuffled(records, self._buffer, random) if self._buffer else records


def _shuffled(records: Iterator[Any], size: int, random: np.random.Generator) -> Iterator[Any]:
    """Hand out records in an order that is random within reach of a buffer."""
    buffer = list(islice(records, size))
    for record in records:
        place = int(random.integers(len(buffer)))
        buffer[place], drawn = record, buffer[place]
        yield drawn
    for place in random.permutation(len(buffer)).tolist():
        yield buffer[place]


class StampedCollate:
    """Collates, by PyTorch's default unless given another collation, and closes the batch's account.

    It shares the dataset's sums: both are handed to a worker together, by fork or in one pickle.
    """

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


def build(
    dataset: Dataset[Fields],
    collate: Collate,
    *,
    batches: Iterable[list[int]] | None,
    batch_size: int,
    num_workers: int,
    prefetch_factor: int | None,
    pin_memory: bool,
    start_method: str = "fork",
    persistent_workers: bool = False,
) -> DataLoader[Fields]:
    """Assemble PyTorch's own DataLoader over a dataset."""
    order: dict[str, Any] = {"batch_sampler": batches} if batches else {"batch_size": batch_size, "drop_last": True}
    return DataLoader(
        dataset,
        **order,
        collate_fn=collate,
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
        pin_memory=pin_memory,
        # Explicit: which one Python would take depends on its version.
        multiprocessing_context=start_method if num_workers else None,
        worker_init_fn=partial(_bind_worker, os.getpid(), start_method == "forkserver"),
        persistent_workers=persistent_workers,
    )


def _bind_worker(training_pid: int, from_server: bool, _worker: int) -> None:
    """See to it that no worker outlives the training process.

    A worker that a server forked is no child of it, and the server lives as long as its workers do: PyTorch's own
    watch, which looks whether a worker's parent has changed, would let both stay for ever.
    """
    if not from_server:
        die_with_parent(training_pid)
        return
    training: Any = parent_process()

    def leave_with_training() -> None:
        training.join()
        os._exit(1)

    threading.Thread(target=leave_with_training, daemon=True).start()


class _Thread(threading.Thread):
    """One worker: batches of indices in, batches or what they failed with out, both in order."""

    def __init__(self, number: int, prepare: Prepare, ready: threading.Barrier) -> None:
        super().__init__(name=f"loader worker {number}", daemon=True)
        self._number = number
        self._prepare = prepare
        self._ready = ready
        self.orders: SimpleQueue[list[int] | None] = SimpleQueue()
        """None ends the worker."""
        self.results: SimpleQueue[Batch | ExceptionWrapper] = SimpleQueue()

    def run(self) -> None:
        torch.set_num_threads(1)  # as PyTorch's worker processes do
        torch.get_num_threads()  # the first look takes the process' number over, which changes behind the barrier
        self._ready.wait()
        while (indices := self.orders.get()) is not None:
            try:
                self.results.put(self._prepare(indices))
            except Exception:  # noqa: BLE001 - whatever it is, it is raised again where the batch is waited for
                where = f"in loader thread {self._number}"
                self.results.put(ExceptionWrapper(where=where))  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Drop the orders that are not begun, and end after the batch that is under way."""
        with contextlib.suppress(Empty):
            while True:
                self.orders.get_nowait()
        self.orders.put(None)


class ThreadLoader:
    """Batches prepared by threads: PyTorch's DataLoader has none, so this loader is ours.

    It does what the DataLoader does with processes: batches of indices are dealt to the workers in turn, each prepares
    whole batches, ``ahead`` of them beforehand, and they are delivered in their order. What a worker raises is raised
    where its batch is waited for, with the worker's traceback, and ends the iteration. A worker computes with one
    thread. Every iteration starts threads of its own, and ends them. Nothing is pickled or sent through shared memory,
    and Python's lock is shared by all and by the training loop: that is the question.
    """

    def __init__(self, workers: Sequence[Prepare], batches: Iterable[list[int]], ahead: int) -> None:
        self._workers = workers
        self._batches = batches
        self._ahead = ahead

    def __iter__(self) -> Iterator[Batch]:
        workers = self._start()
        try:
            yield from self._deliver(workers)
        finally:
            for worker in workers:
                worker.end()
            for worker in workers:
                worker.join()

    def _start(self) -> list[_Thread]:
        """Start threads that compute with one thread each, and leave the training thread as many as it had."""
        threads = torch.get_num_threads()
        ready = threading.Barrier(len(self._workers) + 1)
        workers = [_Thread(number, prepare, ready) for number, prepare in enumerate(self._workers)]
        for worker in workers:
            worker.start()
        ready.wait()
        torch.set_num_threads(threads)
        return workers

    def _deliver(self, workers: list[_Thread]) -> Iterator[Batch]:
        """Deal batches out in turn, and hand them over in the same turn."""
        batches = iter(self._batches)
        waiting: deque[_Thread] = deque()
        for worker, first in zip(workers * self._ahead, batches, strict=False):
            worker.orders.put(first)
            waiting.append(worker)
        while waiting:
            worker = waiting.popleft()
            result = worker.results.get()
            if following := next(batches, None):
                worker.orders.put(following)
                waiting.append(worker)
            if isinstance(result, ExceptionWrapper):
                result.reraise()  # type: ignore[no-untyped-call]
            else:
                yield result


class _Preparation:
    """A dataset and its collation, called with the indices of a batch; the thread itself fills page-locked memory."""

    def __init__(self, dataset: Dataset[Fields], collate: Callable[[list[Fields]], Batch], pin_memory: bool) -> None:
        self._dataset = dataset
        self._collate = collate
        self._pin_memory = pin_memory
        self._opening: contextlib.AbstractContextManager[Any] = _OPENING

    def __call__(self, indices: list[int]) -> Batch:
        with self._opening:
            batch = self._collate([self._dataset[index] for index in indices])
            if self._pin_memory:
                batch = batch._replace(fields=tuple(field.pin_memory() for field in batch.fields))
        self._opening = contextlib.nullcontext()  # it is open, in later epochs too
        return batch


def build_threads(
    dataset: Dataset[Fields],
    collate: Callable[[list[Fields]], Batch],
    *,
    batches: Iterable[list[int]],
    num_workers: int,
    prefetch_factor: int,
    pin_memory: bool,
) -> ThreadLoader:
    """Assemble a loader of threads, each with a dataset of its own, as a process has: its own handles and account."""
    copies: list[tuple[Any, Any]] = [deepcopy((dataset, collate)) for _ in range(num_workers)]
    for number, (_, own) in enumerate(copies):
        if isinstance(own, StampedCollate):
            own.worker = number
    return ThreadLoader([_Preparation(*copy, pin_memory) for copy in copies], batches, prefetch_factor)
