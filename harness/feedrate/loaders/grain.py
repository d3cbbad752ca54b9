"""Grain: Google's loader, of processes that each prepare every n-th batch.

Workers are spawned, so each imports torch, and the data set is pickled. Batches come as NumPy arrays, which Grain
passes through shared memory of its own: tensors, which PyTorch's reductions pass, are lost when an iterator closes. A
process reads with no further threads (``ReadOptions(num_threads=0)``), so that as many workers compute as with other
loaders.
https://google-grain.readthedocs.io/en/latest/tutorials/dataset_advanced_tutorial.html
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from grain import MapDataset, MultiprocessingOptions, ReadOptions
from numpy.typing import NDArray
from torch.utils.data import Dataset

from feedrate.loaders import Batch, Batches, Fields, LoadOptions, StampedCollate
from feedrate.machine.linux import die_with_parent

REQUIRES: dict[str, str] = {"torch": "torch", "grain": "grain"}
TRAITS: dict[str, object] = {
    "title": "Grain",
    "workers": "processes",
    "spawns": True,
    "lacks": "forked workers: each imports torch anew",
}
_ENDLESS = 1 << 40


def build(
    dataset: Dataset[Fields], collate: StampedCollate, batches: Iterable[list[int]], options: LoadOptions
) -> GrainLoader:
    """Assemble a data set of batches, which worker processes index."""
    return GrainLoader(dataset, collate, batches, options)


class GrainLoader:
    """Batches of spawned processes, in order."""

    def __init__(
        self, dataset: Dataset[Fields], collate: StampedCollate, batches: Iterable[list[int]], options: LoadOptions
    ) -> None:
        self._samples = dataset, collate
        self._batches = batches
        self._options = options

    def __iter__(self) -> Iterator[Batch]:
        workers = self._options.num_workers
        endless = isinstance(self._batches, Batches) and self._batches.endless
        source = _BatchSource(*self._samples, self._batches if endless else list(self._batches), workers)
        processes = MultiprocessingOptions(workers, per_worker_buffer_size=self._options.prefetch_factor)
        samples = MapDataset.source(source).to_iter_dataset(ReadOptions(num_threads=0, prefetch_buffer_size=0))
        iterator: Any = iter(samples.mp_prefetch(processes, partial(_begin, os.getpid())))
        try:
            for arrays, stamps in iterator:
                batch = Batch(tuple(torch.from_numpy(np.asarray(array)) for array in arrays), stamps)
                yield batch.pinned() if self._options.pin_memory else batch
        finally:
            iterator.close()


class _BatchSource:
    """Whole batches by their number; worker i prepares those of i, i + workers and so on."""

    def __init__(
        self, dataset: Dataset[Fields], collate: StampedCollate, batches: Iterable[list[int]], workers: int
    ) -> None:
        self._samples = dataset, collate
        self._batches = batches
        self._workers = workers
        self._order: list[list[int]] = batches if isinstance(batches, list) else []
        self._rest: Iterator[list[int]] | None = None

    def __len__(self) -> int:
        return len(self._batches) if isinstance(self._batches, list) else _ENDLESS

    def __getitem__(self, number: int) -> tuple[tuple[NDArray[Any], ...], bytes]:
        if len(self._order) <= number:
            self._rest = self._rest or iter(self._batches)
            self._order += [next(self._rest) for _ in range(number + 1 - len(self._order))]
        dataset, collate = self._samples
        collate.worker = number % self._workers
        fields, stamps = collate([dataset[index] for index in self._order[number]])
        return tuple(field.numpy() for field in fields), stamps


def _begin(training_pid: int, _worker: int, _workers: int) -> None:
    """As in PyTorch's workers: one thread computes, and the process ends with its parent."""
    die_with_parent(training_pid)
    torch.set_num_threads(1)
