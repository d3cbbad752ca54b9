"""The DataLoader that is measured, and the workers' own account of what they do.

A step timer sees only that a batch was late. The dataset therefore stamps read, decode and transform of every sample
and the collate function the batch; the four sums travel with the batch as 32 inline bytes (one more tensor would cost
340 to 420 us a batch, bytes cost 10 to 70).
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from harness.formats import Reader, Sample
from harness.linux import die_with_parent

Fields = tuple[torch.Tensor, ...]
Collate = Callable[[list[Fields]], Any]
"""Makes the tensors of a batch, one a field, out of its samples."""
STAMPS = struct.Struct("<4q")
"""Nanoseconds of read, decode, transform, collate for one batch."""


class Batch(NamedTuple):
    """What the loader delivers; a named tuple, so that the pinning thread pins its tensors and leaves the bytes."""

    fields: Fields
    """The workload's tensors, each batch × channels × height × width."""
    stamps: bytes
    """``STAMPS``."""


class StampedDataset(Dataset[Fields]):
    """Map-style access to packed samples; adds up what each stage took until the batch is collated."""

    def __init__(self, reader: Reader, transform: Callable[[Sample], Fields]) -> None:
        self._reader = reader
        self._transform = transform
        self.spent = [0, 0, 0]
        """Nanoseconds of read, decode, transform since the last batch."""

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: int) -> Fields:
        now = time.perf_counter_ns
        begun = now()
        raw = self._reader.read(index)
        read = now()
        sample = self._reader.decode(raw)
        decoded = now()
        fields = self._transform(sample)
        spent = self.spent
        spent[0] += read - begun
        spent[1] += decoded - read
        spent[2] += now() - decoded
        return fields


class StampedCollate:
    """Collates, by PyTorch's default unless told otherwise, and closes the batch's account.

    It shares the dataset's sums: both are handed to a worker together, by fork or in one pickle.
    """

    def __init__(self, dataset: StampedDataset, collate: Collate = default_collate) -> None:
        self._dataset = dataset
        self._collate = collate

    def __call__(self, samples: list[Fields]) -> Batch:
        """Collate one batch."""
        begun = time.perf_counter_ns()
        fields = tuple(self._collate(samples))
        spent = self._dataset.spent
        stamps = STAMPS.pack(*spent, time.perf_counter_ns() - begun)
        spent[:] = 0, 0, 0
        return Batch(fields, stamps)


class EndlessBatches:
    """Batches of indices without end: one seeded permutation of the set after the other, incomplete batches dropped.

    No epoch boundary falls inside a window, and each sample comes once before any comes again.
    """

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self._count = count
        self._batch_size = batch_size
        self._seed = seed

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng(self._seed)
        whole = self._count - self._count % self._batch_size
        while True:
            order = generator.permutation(self._count)[:whole].tolist()
            for start in range(0, whole, self._batch_size):
                yield order[start : start + self._batch_size]


def _begin_worker(main_process: int, _worker: int) -> None:
    die_with_parent(main_process)


def build(
    dataset: StampedDataset,
    collate: StampedCollate,
    *,
    batch_size: int,
    num_workers: int,
    prefetch_factor: int | None,
    pin_memory: bool,
    seed: int,
) -> DataLoader[Fields]:
    """Assemble PyTorch's own DataLoader over a dataset.

    Args:
        dataset: what is read.
        collate: makes its batches.
        batch_size: samples in a batch.
        num_workers: worker processes.
        prefetch_factor: batches that each worker prepares ahead; None without workers.
        pin_memory: whether batches end in page-locked memory.
        seed: of the sampler.
    """
    return DataLoader(
        dataset,
        batch_sampler=EndlessBatches(len(dataset), batch_size, seed),
        collate_fn=collate,
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
        pin_memory=pin_memory,
        # Explicit: Python 3.14 starts workers from a server, whose death is not the training process'.
        multiprocessing_context="fork" if num_workers else None,
        worker_init_fn=partial(_begin_worker, os.getpid()),
    )
