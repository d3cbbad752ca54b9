"""torchdata.nodes: a chain of iterators, here a mapper with threads behind the order of batches.

Threads are its default; they share Python's lock with the training loop. It looks for results every 0.1 s at least,
and holds at most ``prefetch_factor`` batches a thread.
https://docs.pytorch.org/data/main/migrate_to_nodes_from_utils.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch.utils.data import Dataset
from torchdata.nodes import IterableWrapper, ParallelMapper, Prefetcher

from feedrate.loaders import Batch, Fields, LoadOptions, Pool, StampedCollate, copies

REQUIRES: dict[str, str] = {"torch": "torch", "torchdata": "torchdata"}
TRAITS: dict[str, object] = {
    "title": "torchdata.nodes",
    "workers": "threads",
    "lacks": "Python code that runs in parallel",
}


def build(
    dataset: Dataset[Fields], collate: StampedCollate, batches: Iterable[list[int]], options: LoadOptions
) -> NodesLoader:
    """Assemble the nodes; each iteration builds its own, as none can be told to end."""
    return NodesLoader(Pool(copies(dataset, collate, options)), batches, options)


class NodesLoader:
    """Batches of a parallel mapper."""

    def __init__(self, pool: Pool, batches: Iterable[list[int]], options: LoadOptions) -> None:
        self._pool = pool
        self._batches = batches
        self._options = options

    def __iter__(self) -> Iterator[Batch]:
        workers, threads = self._options.num_workers, torch.get_num_threads()
        mapper = ParallelMapper(IterableWrapper(self._batches), self._pool.prepare, workers, method="thread")
        node = Prefetcher(mapper, max(1, workers * (self._options.prefetch_factor - 1)))
        node.reset()
        for batch in node:
            torch.set_num_threads(threads)  # a worker's first batch lowers it for all of MKL
            yield batch
