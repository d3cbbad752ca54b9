"""Grain: Google's loader, of processes that each prepare every n-th batch.

Workers are spawned, so each imports torch, and the data set is pickled. Batches come as NumPy arrays, which Grain
passes through shared memory of its own: tensors, which PyTorch's reductions pass, are lost when an iterator closes. A
process reads with no further threads (``num_threads=0``), so that as many workers compute as with other loaders.
https://google-grain.readthedocs.io/en/latest/tutorials/dataset_advanced_tutorial.html
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from functools import partial
from itertools import islice
from multiprocessing import shared_memory
from typing import Any

import numpy as np
import torch
from grain import MapDataset, MultiprocessingOptions, ReadOptions

from feedrate.loaders import Batch, Loader
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


class GrainLoader(Loader):
    """Batches of spawned processes, in order, which index a data set of whole batches."""

    def __iter__(self) -> Iterator[Batch]:
        processes = MultiprocessingOptions(self.options.num_workers, self.options.prefetch_factor)
        samples = MapDataset.source(_BatchSource(self)).to_iter_dataset(ReadOptions(0, prefetch_buffer_size=0))
        iterator: Any = iter(samples.mp_prefetch(processes, partial(_begin, os.getpid())))
        try:
            for arrays, stamps in iterator:
                batch = Batch(tuple(torch.from_numpy(np.asarray(array)) for array in arrays), stamps)
                yield batch.pinned() if self.options.pin_memory else batch
        finally:
            iterator.close()


class _BatchSource:
    """Whole batches by their number; worker i prepares those of i, i + workers and so on."""

    def __init__(self, loader: GrainLoader) -> None:
        self.dataset, self.collate, self.workers = loader.dataset, loader.collate, loader.options.num_workers
        self.endless = loader.batches if getattr(loader.batches, "endless", False) else ()
        self.order = [] if self.endless else list(loader.batches)
        """Indices of the batches, as far as they are known."""
        self.rest: Iterator[list[int]] | None = None

    def __len__(self) -> int:
        return _ENDLESS if self.endless else len(self.order)

    def __getitem__(self, number: int) -> tuple[tuple[Any, ...], bytes]:
        self.rest = self.rest or iter(self.endless)
        self.order += islice(self.rest, max(0, number + 1 - len(self.order)))
        self.collate.worker = number % self.workers
        fields, stamps = self.collate([self.dataset[index] for index in self.order[number]])
        return tuple(field.numpy() for field in fields), stamps


def _begin(training_pid: int, _worker: int, _workers: int) -> None:
    """Compute in one thread, end with the parent, and name it in shared memory, so that what it leaves is removed."""
    shared_memory._make_filename = lambda: f"/psm_{training_pid}_{secrets.token_hex(6)}"  # type: ignore[attr-defined]
    die_with_parent(training_pid)
    torch.set_num_threads(1)


build = GrainLoader
