"""Grain: Google's loader, of processes that each prepare every n-th batch.

Workers are spawned, so each imports torch, and the data set is pickled. Batches come as NumPy arrays, which Grain
passes through shared memory of its own: tensors, which PyTorch's reductions pass, are lost when an iterator closes. A
process reads with no further threads (``ReadOptions(num_threads=0)``), so that as many workers compute as with other
loaders.
https://google-grain.readthedocs.io/en/latest/tutorials/dataset_advanced_tutorial.html
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import shared_memory
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
    "resumes": True,
    "lacks": "forked workers: each imports torch anew",
}
_ENDLESS = 1 << 40


@dataclass(frozen=True, slots=True)
class GrainLoader:
    """Batches of spawned processes, in order, which index a data set of whole batches."""

    dataset: Dataset[Fields]
    collate: StampedCollate
    batches: Iterable[list[int]]
    options: LoadOptions

    def __iter__(self) -> Iterator[Batch]:
        workers = self.options.num_workers
        endless = self.batches if isinstance(self.batches, Batches) and self.batches.endless else None
        source = _BatchSource(self.dataset, self.collate, workers, [] if endless else list(self.batches), endless)
        processes = MultiprocessingOptions(workers, per_worker_buffer_size=self.options.prefetch_factor)
        samples = MapDataset.source(source).to_iter_dataset(ReadOptions(num_threads=0, prefetch_buffer_size=0))
        iterator: Any = iter(samples.mp_prefetch(processes, partial(_begin, os.getpid())))
        try:
            for arrays, stamps in iterator:
                batch = Batch(tuple(torch.from_numpy(np.asarray(array)) for array in arrays), stamps)
                yield batch.pinned() if self.options.pin_memory else batch
        finally:
            iterator.close()


build = GrainLoader


@dataclass(slots=True)
class _BatchSource:
    """Whole batches by their number; worker i prepares those of i, i + workers and so on."""

    dataset: Dataset[Fields]
    collate: StampedCollate
    workers: int
    order: list[list[int]]
    """Indices of the batches, as far as they are known."""
    endless: Batches | None
    """Gives further ones, where there is no end."""
    rest: Iterator[list[int]] | None = None

    def __len__(self) -> int:
        return _ENDLESS if self.endless else len(self.order)

    def __getitem__(self, number: int) -> tuple[tuple[NDArray[Any], ...], bytes]:
        if self.endless and len(self.order) <= number:
            self.rest = self.rest or iter(self.endless)
            self.order += islice(self.rest, number + 1 - len(self.order))
        self.collate.worker = number % self.workers
        fields, stamps = self.collate([self.dataset[index] for index in self.order[number]])
        return tuple(field.numpy() for field in fields), stamps


def _begin(training_pid: int, _worker: int, _workers: int) -> None:
    """As in PyTorch's workers: one thread computes, and the process ends with its parent.

    Names of shared memory hold the training process, so that what it leaves when it is killed can be told and removed.
    """
    shared_memory._make_filename = lambda: f"/psm_{training_pid}_{secrets.token_hex(6)}"  # type: ignore[attr-defined]
    die_with_parent(training_pid)
    torch.set_num_threads(1)
