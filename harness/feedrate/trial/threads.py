"""Workers that are threads of the training process: PyTorch's DataLoader has none, so this one is ours.

It does what the DataLoader does with processes, and differs in what a worker is alone: batches of indices are dealt to
the workers in turn, each prepares whole batches, ``ahead`` of them beforehand, and they are delivered in their order;
what a worker raises is raised where its batch is waited for, with the worker's traceback, and ends the iteration; a
worker computes with one thread. Nothing is pickled or sent through shared memory, and Python's lock is shared by all
and by the training loop: that is the question. Every worker has a dataset of its own, as a process has, so that
handles, planted costs and the account of a batch are not shared. Page-locked memory is filled by the worker and not by
a further thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from queue import Empty, SimpleQueue
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import Dataset

from feedrate.trial.loader import Batch, Fields, StampedCollate

Prepare = Callable[[list[int]], Batch]
"""Makes a batch out of its samples' indices."""
_OPENING = threading.Lock()
"""Held for a dataset's first batch, in which what it reads is opened: LMDB refuses to open a file twice at a time."""


class _Worker(threading.Thread):
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
        """Prepare batches until None is ordered."""
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
    """Batches prepared by threads; every iteration starts threads of its own, and ends them."""

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

    def _start(self) -> list[_Worker]:
        """Start threads that compute with one thread each, and leave the training thread as many as it had."""
        threads = torch.get_num_threads()
        ready = threading.Barrier(len(self._workers) + 1)
        workers = [_Worker(number, prepare, ready) for number, prepare in enumerate(self._workers)]
        for worker in workers:
            worker.start()
        ready.wait()
        torch.set_num_threads(threads)
        return workers

    def _deliver(self, workers: list[_Worker]) -> Iterator[Batch]:
        """Deal batches out in turn, and hand them over in the same turn."""
        batches = iter(self._batches)
        waiting: deque[_Worker] = deque()
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
    """A dataset and its collation, called with the indices of a batch."""

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


def build(
    dataset: Dataset[Fields],
    collate: Callable[[list[Fields]], Batch],
    *,
    batches: Iterable[list[int]],
    num_workers: int,
    prefetch_factor: int,
    pin_memory: bool,
) -> ThreadLoader:
    """Assemble a loader of threads over a dataset."""
    copies: list[tuple[Any, Any]] = [deepcopy((dataset, collate)) for _ in range(num_workers)]
    for number, (_, own) in enumerate(copies):
        if isinstance(own, StampedCollate):
            own.worker = number
    return ThreadLoader([_Preparation(*copy, pin_memory) for copy in copies], batches, prefetch_factor)
