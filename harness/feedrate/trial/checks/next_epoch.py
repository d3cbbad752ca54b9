"""Whether state that the main process changes between epochs reaches the workers.

Many datasets keep state that a training script sets anew each epoch (``dataset.next_epoch()``, a resampled subset,
a growing crop). Workers hold copies of the dataset: those that start with an epoch copy it as it is then, persistent
ones as it was when the first epoch began.

The value is the share of the second epoch's samples that were still made from the first epoch's state; the fact, that
there were any.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch.utils.data import DataLoader

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

SAMPLES = 64
WORKERS = 2
_BATCH = 8


class Stateful(Protocol):
    """A dataset with a state that the training script changes between epochs."""

    def __len__(self) -> int:
        """Samples in an epoch."""

    def __getitem__(self, index: int, /) -> torch.Tensor:
        """Give (index, epoch), int64."""

    def next_epoch(self) -> None:
        """Go on to the next epoch, beginning with 0."""


class Counted:
    """Samples that name the epoch, which the dataset keeps as an ordinary attribute."""

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
    """Run two epochs with the axis ``persistent_workers`` and see which state the second one's samples come from."""
    persistent = job.value("persistent_workers")
    stale = stale_samples(Counted(), persistent=persistent)
    kept = "lived on from the first epoch" if persistent else "were started anew"
    return Finding(
        stale > 0,
        stale / SAMPLES,
        f"The main process changed the dataset's state between two epochs; {stale} of {SAMPLES} samples of the second "
        f"still came from the old state, read by {WORKERS} workers that {kept}.",
    )


def stale_samples(dataset: Stateful, *, persistent: bool) -> int:
    """Count the samples of the second epoch that were made from the first one's state.

    Raises:
        TrialError: an epoch did not hold each sample once, or the first one was not made from its own state.
    """
    loader: DataLoader[torch.Tensor] = DataLoader(
        dataset,  # type: ignore[arg-type]  # what PyTorch asks for are these two methods; its class adds nothing
        batch_size=_BATCH,
        num_workers=WORKERS,
        persistent_workers=persistent,
        multiprocessing_context="fork",
    )
    first = _epoch(loader)
    dataset.next_epoch()
    second = _epoch(loader)
    if first != dict.fromkeys(range(len(dataset)), 0) or second.keys() != first.keys():
        raise TrialError("the check's own epochs are not whole: each sample should come once, the first from state 0")
    return sum(epoch == 0 for epoch in second.values())


def _epoch(loader: DataLoader[torch.Tensor]) -> dict[int, int]:
    """Sample to the epoch that it was made in."""
    rows = [row for batch in loader for row in batch.tolist()]
    if len(rows) != len(dict(rows)):
        raise TrialError("the check's own epoch holds a sample twice")
    return dict(rows)
