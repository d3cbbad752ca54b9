"""Whether state that the main process changes between epochs reaches the workers.

Many datasets keep state that a training script sets anew each epoch (``dataset.next_epoch()``, a resampled subset,
a growing crop). Workers hold copies of the dataset: those that start with an epoch copy it as it is then, persistent
ones as it was when the first epoch began.

The value is the share of the second epoch's samples that were still made from the first epoch's state; the fact, that
there were any.
"""

from __future__ import annotations

from torch.utils.data import DataLoader, Dataset

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

SAMPLES, WORKERS = 64, 2


class _EpochSamples(Dataset[list[int]]):
    """Samples (index, epoch); the dataset keeps the epoch as an ordinary attribute."""

    epoch = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> list[int]:
        return [index, self.epoch]


def check(job: Job) -> Finding:
    """Change a dataset's state between two epochs and count the samples that do not know of it."""
    persistent, dataset = job.value("persistent_workers"), _EpochSamples()
    loader = DataLoader(
        dataset, 8, num_workers=WORKERS, collate_fn=list, persistent_workers=persistent, multiprocessing_context="fork"
    )
    first = sorted(sample for batch in loader for sample in batch)
    dataset.epoch = 1
    second = sorted(sample for batch in loader for sample in batch)
    if first != [[index, 0] for index in range(SAMPLES)] or [index for index, _ in second] != list(range(SAMPLES)):
        raise TrialError("the check's own epochs are not whole: each sample should come once, the first from state 0")
    stale = sum(epoch == 0 for _, epoch in second)
    evidence = (
        f"The main process changed the dataset's state between two epochs; {stale} of {SAMPLES} samples of the second "
        f"still came from the old state, read by {WORKERS} workers that "
        f"{'lived on from the first epoch' if persistent else 'were started anew'}."
    )
    return Finding(stale > 0, stale / SAMPLES, evidence)
