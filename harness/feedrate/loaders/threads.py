"""Threads of the training process: PyTorch's DataLoader has none, so this loader is ours.

It does what the DataLoader does with processes: batches of indices are dealt to the workers in turn, each prepares
whole batches, ``prefetch_factor`` of them beforehand, and they are delivered in their order. What a worker raises is
raised where its batch is waited for, with the worker's traceback, and ends the iteration. A worker computes with one
thread. Every iteration starts threads of its own, and ends them. Nothing is pickled or sent through shared memory, and
Python's lock is shared by all and by the training loop: that is the question.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import Dataset

from feedrate.loaders import Batch, Fields, LoadOptions, StampedCollate, copies

REQUIRES: dict[str, str] = {"torch": "torch"}
TRAITS: dict[str, object] = {
    "title": "feedrate’s threads",
    "workers": "threads",
    "lacks": "Python code that runs in parallel",
}
Prepare = Callable[[list[int]], Batch]
"""Makes a batch out of its samples' indices."""


def build(
    dataset: Dataset[Fields], collate: StampedCollate, batches: Iterable[list[int]], options: LoadOptions
) -> ThreadLoader:
    """Assemble a loader of threads, each with a dataset of its own, as a process has: its own handles and account."""
    workers = [copy.prepare for copy in copies(dataset, collate, options)]
    return ThreadLoader(workers, batches, options.prefetch_factor)


class ThreadLoader:
    """Batches prepared by threads, ``ahead`` of them for each beforehand."""

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
