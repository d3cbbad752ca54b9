"""How many batches a DataLoader has prepared before the first one is used.

Nothing is taken from an iterator that was just made, until its workers have stopped reading. They count the samples
that they read in shared memory. The value is that count, in batches; the fact, that it is ``prefetch_factor`` ×
``num_workers``. Source: ``_MultiProcessingDataLoaderIter._reset`` in ``torch/utils/data/dataloader.py``.
"""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

WORKERS, PREFETCH, BATCH = 2, 4, 8
STILL_S, MOST_S = 1.0, 30.0
"""Workers that read nothing for so long have stopped; most time to wait for that."""


class _Counted(Dataset[int]):
    """Samples that note that they were read: a byte each, in memory that workers share."""

    def __init__(self) -> None:
        noted = torch.zeros(8 * WORKERS * PREFETCH * BATCH, dtype=torch.uint8)
        self.read = noted.share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.read)

    def __getitem__(self, index: int) -> int:
        self.read[index] = 1
        return index


def check(_job: Job) -> Finding:
    """Start workers, take nothing, and count what they read."""
    dataset = _Counted()
    loader = DataLoader(dataset, BATCH, num_workers=WORKERS, prefetch_factor=PREFETCH, multiprocessing_context="fork")
    batches = iter(loader)
    started = changed = time.monotonic()
    seen = 0
    while (now := time.monotonic()) - changed < STILL_S or not seen:
        if (read := int(dataset.read.sum())) != seen:
            seen, changed = read, now
        if now - started > MOST_S:
            raise TrialError(f"the check's workers had not come to rest after {MOST_S:g} s")
        time.sleep(0.02)
    del batches
    ahead = seen / BATCH
    return Finding(
        ahead == WORKERS * PREFETCH,
        ahead,
        f"{WORKERS} workers with a prefetch_factor of {PREFETCH} had read {seen} samples, {ahead:g} batches of "
        f"{BATCH}, before the first batch was taken.",
    )
