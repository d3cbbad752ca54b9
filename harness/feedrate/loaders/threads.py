"""Threads of the training process: PyTorch's DataLoader has none, so this loader is ours.

It does what the DataLoader does with processes: batches of indices are dealt to the workers in turn, each prepares
whole batches, ``prefetch_factor`` of them beforehand, and they are delivered in their order. What a worker raises is
raised where its batch is waited for, and ends the iteration. A worker computes with one thread. Every iteration starts
threads of its own, and ends them. Nothing is pickled or sent through shared memory, and Python's lock is shared by all
and by the training loop: that is the question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice

import torch

from feedrate.loaders import Batch, Loader, copies

REQUIRES: dict[str, str] = {"torch": "torch"}
TRAITS: dict[str, object] = {
    "title": "feedrate’s threads",
    "workers": "threads",
    "lacks": "Python code that runs in parallel",
}


@dataclass
class ThreadLoader(Loader):
    """Batches prepared by threads, each with a copy of the dataset, as a process has."""

    def __post_init__(self) -> None:
        self._copies = copies(self)

    def __iter__(self) -> Iterator[Batch]:
        threads = torch.get_num_threads()
        pools = [ThreadPoolExecutor(1, f"loader worker {number}") for number in range(len(self._copies))]
        try:
            for pool in pools:
                pool.submit(_compute_alone).result()
            torch.set_num_threads(threads)
            turns = cycle(zip(pools, self._copies, strict=True))
            orders = (pool.submit(prepare, batch) for batch, (pool, prepare) in zip(self.batches, turns, strict=False))
            pending: deque[Future[Batch]] = deque(islice(orders, len(pools) * self.options.prefetch_factor))
            while pending:
                batch = pending.popleft().result()
                pending.extend(islice(orders, 1))
                yield batch
        finally:
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)
            for pool in pools:
                pool.shutdown()


def _compute_alone() -> None:
    """Compute with one thread, as PyTorch's worker processes do, whatever the training thread is set to later."""
    torch.set_num_threads(1)
    torch.get_num_threads()  # the first look takes the process' number over


build = ThreadLoader
