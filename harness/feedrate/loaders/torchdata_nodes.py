"""torchdata.nodes: a chain of iterators, here a mapper with threads behind the order of batches.

Threads are its default; they share Python's lock with the training loop. It looks for results every 0.1 s at least,
and holds at most ``prefetch_factor`` batches a thread.
https://docs.pytorch.org/data/main/migrate_to_nodes_from_utils.html
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torchdata.nodes import IterableWrapper, ParallelMapper, Prefetcher

from feedrate.loaders import Batch, Pooled

REQUIRES: dict[str, str] = {"torch": "torch", "torchdata": "torchdata"}
TRAITS: dict[str, object] = {
    "title": "torchdata.nodes",
    "workers": "threads",
    "resumes": True,
    "lacks": "Python code that runs in parallel",
}


class NodesLoader(Pooled):
    """Batches of a parallel mapper; each iteration builds its own, as none can be told to end."""

    def __iter__(self) -> Iterator[Batch]:
        threads = torch.get_num_threads()
        mapper = ParallelMapper(IterableWrapper(self.batches), self.prepare, self.options.num_workers, method="thread")
        node = Prefetcher(mapper, self.ahead)
        node.reset()
        for batch in node:
            torch.set_num_threads(threads)  # a worker's first batch lowers it for all of MKL
            yield batch


build = NodesLoader
