"""State that does not reach workers is seen, and state that does is not called stale."""

from __future__ import annotations

import pytest
import torch

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import next_epoch
from feedrate.trial.checks.next_epoch import SAMPLES, EpochSamples, stale_samples
from feedrate.trial.job import Job


class Shared(EpochSamples):
    """The same samples, with the epoch in memory that all processes share."""

    def __init__(self) -> None:
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def next_epoch(self) -> None:
        self._epoch += 1


class Late(EpochSamples):
    """A dataset that is beyond its first epoch from the beginning."""

    def __init__(self) -> None:
        self.epoch = 1


def checked(persistent: bool) -> next_epoch.Finding:
    return next_epoch.check(Job("trial", cell={"mode": "check", "persistent_workers": persistent}))


def test_persistent_workers_keep_the_old_state() -> None:
    """Workers that live on deliver the whole second epoch from the state that they were started with."""
    found = checked(True)
    assert found.fact
    assert found.value == 1
    assert f"{SAMPLES} of {SAMPLES} samples of the second still came from the old state" in found.evidence


def test_fresh_workers_see_the_new_state() -> None:
    """Workers that start with each epoch copy the state as it is then: nothing is stale."""
    found = checked(False)
    assert not found.fact
    assert found.value == 0
    assert "started anew" in found.evidence


@pytest.mark.parametrize("persistent", [False, True])
def test_shared_state_reaches_all_workers(persistent: bool) -> None:
    """State in shared memory reaches persistent workers too: what makes samples stale is that workers hold copies."""
    assert stale_samples(Shared(), persistent=persistent) == 0


def test_an_epoch_that_proves_nothing_is_refused() -> None:
    """A first epoch that was not made from the first state shows nothing about a change of it."""
    with pytest.raises(TrialError, match="the first from state 0"):
        stale_samples(Late(), persistent=True)
