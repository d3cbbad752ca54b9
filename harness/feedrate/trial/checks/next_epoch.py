"""Whether state that the main process changes between epochs reaches the workers.

Many datasets keep state that a training script sets anew each epoch (``dataset.next_epoch()``, a resampled subset,
a growing crop). Workers hold copies of the dataset: those that start with an epoch copy it as it is then, persistent
ones as it was when the first epoch began.

The value is the share of the second epoch's samples that were still made from the first epoch's state; the fact, that
there were any.
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

SAMPLES = 64
WORKERS = 2
_BATCH = 8


class EpochSamples(Dataset[torch.Tensor]):
    """Samples (index, epoch), int64; the dataset keeps the epoch as an ordinary attribute."""

    def __init__(self) -> None:
        self.epoch = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, self.epoch])

    def next_epoch(self) -> None:
        """Go on to the next epoch."""
        self.epoch += 1


def check(job: Job) -> Finding:
    """Change a dataset's state between two epochs and count the samples that do not know of it."""
    persistent = job.value("persistent_workers")
    stale = stale_samples(EpochSamples(), persistent=persistent)
    kept = "lived on from the first epoch" if persistent else "were started anew"
    return Finding(
        stale > 0,
        stale / SAMPLES,
        f"The main process changed the dataset's state between two epochs; {stale} of {SAMPLES} samples of the second "
        f"still came from the old state, read by {WORKERS} workers that {kept}.",
    )


def stale_samples(dataset: EpochSamples, *, persistent: bool) -> int:
    """Count the samples of the second epoch that were made from the first one's state."""
    loader: DataLoader[torch.Tensor] = DataLoader(
        dataset,
        batch_size=_BATCH,
        num_workers=WORKERS,
        persistent_workers=persistent,
        multiprocessing_context="fork",
    )
    first = sorted(row for batch in loader for row in batch.tolist())
    dataset.next_epoch()
    second = sorted(row for batch in loader for row in batch.tolist())
    indices = list(range(SAMPLES))
    if first != [[index, 0] for index in indices] or [index for index, _ in second] != indices:
        raise TrialError("the check's own epochs are not whole: each sample should come once, the first from state 0")
    return sum(epoch == 0 for _, epoch in second)
