"""How many batches a DataLoader has prepared before the first one is used.

Nothing is taken from an iterator that was just made, until its workers have stopped reading. They tell of each sample
through a pipe. The value is their count, in batches; the fact, that it is ``prefetch_factor`` × ``num_workers``.
Source: ``_MultiProcessingDataLoaderIter._reset`` in ``torch/utils/data/dataloader.py``.
"""

from __future__ import annotations

import os
from multiprocessing import get_context

from torch.utils.data import DataLoader, Dataset

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding, listen
from feedrate.trial.job import Job

WORKERS, PREFETCH, BATCH = 2, 4, 8
STILL_S, START_S = 1.0, 30.0
"""Workers that read nothing for so long have stopped; most time until they begin."""


class _Counted(Dataset[int]):
    """Samples that tell through a pipe that they were read, with a byte each."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def __len__(self) -> int:
        return 8 * WORKERS * PREFETCH * BATCH

    def __getitem__(self, index: int) -> int:
        return os.write(self._pipe, b".")


def check(_job: Job) -> Finding:
    """Start workers, take nothing, and count what they read."""
    reading, writing = os.pipe()
    samples, fork = _Counted(writing), get_context("fork")
    loader = DataLoader(samples, BATCH, num_workers=WORKERS, prefetch_factor=PREFETCH, multiprocessing_context=fork)
    batches = iter(loader)
    read = len(listen(reading, START_S, b".") + listen(reading, STILL_S))
    del batches
    os.close(reading)
    os.close(writing)
    if not read:
        raise TrialError(f"the check's workers had read nothing after {START_S:g} s")
    ahead = read / BATCH
    evidence = (
        f"{WORKERS} workers with a prefetch_factor of {PREFETCH} had read {read} samples, {ahead:g} batches of "
        f"{BATCH}, before the first batch was taken."
    )
    return Finding(ahead == WORKERS * PREFETCH, ahead, evidence)
