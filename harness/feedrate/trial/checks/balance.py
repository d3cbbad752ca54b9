"""Whether a DataLoader gives a batch to the worker that is free, or to each worker in turn.

Of two workers one sleeps four times as long for every sample. PyTorch hands out the next indices when a batch is taken
from it: in turn, so that batches come in order, or with ``in_order=False`` to whoever has least to do. Every sample
tells which worker prepared it.

The value is how many batches the fast worker prepared for one of the slow worker's; the fact, that it is ``SHARED`` or
more. Source: ``_MultiProcessingDataLoaderIter._try_put_index`` in ``torch/utils/data/dataloader.py``.
"""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

SHARED = 2.0
"""Half of what the workers differ by: a stock that is prepared ahead takes its part."""
SLOWER = 4
_BATCH, _BATCHES, _SLEEP_S = 4, 60, 0.002


class _Uneven(Dataset[int]):
    """Samples that are their worker's number, and take worker 0 four times as long as worker 1."""

    def __len__(self) -> int:
        return _BATCH * _BATCHES

    def __getitem__(self, index: int) -> int:
        if (worker := get_worker_info()) is None:
            raise TrialError("the check's samples are not read by workers")
        time.sleep(_SLEEP_S * (1 if worker.id else SLOWER))
        return int(worker.id)


def check(job: Job) -> Finding:
    """Read an epoch and count who prepared its batches."""
    in_order = job.value("in_order")
    loader = DataLoader(_Uneven(), _BATCH, num_workers=2, multiprocessing_context="fork", in_order=in_order)
    workers = [int(batch[0]) for batch in loader if len(torch.unique(batch)) == 1]
    fast, slow = workers.count(1), workers.count(0)
    if fast + slow != _BATCHES or not slow:
        raise TrialError(f"the check's own epoch is not whole: {fast} and {slow} batches of {_BATCHES}")
    evidence = (
        f"Of {_BATCHES} batches the slow worker, which takes {SLOWER} times as long, prepared {slow}, and the fast one "
        f"{fast}, {'in' if in_order else 'out of'} order."
    )
    return Finding(fast / slow >= SHARED, fast / slow, evidence)
