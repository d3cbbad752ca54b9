"""Worker processes: of every start method, which end with their trial."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from feedrate.loaders import Batch
from feedrate.trial.job import Job

if TYPE_CHECKING:
    from warm import Runner

pytestmark = pytest.mark.slow
CELL = {"workload": "synthetic", "mode": "load", "storage_format": "memmap", "patch_size": 8, "n_samples": 24}
CELL |= {"batch_size": 4, "num_workers": 1, "prefetch_factor": 2}
FAMILY = {"fork": 1, "forkserver": 3}
"""Start method to the processes below a trial with one worker: a tracker of semaphores, a server."""


def test_new_interpreters_give_the_same_batches_epoch_after_epoch(
    job: Callable[..., Job], fetch: Callable[[Job, int], list[Batch]]
) -> None:
    """One that got everything in a pickle reads what this process reads; workers are kept."""
    workers = job(num_workers=1, epoch_steps=3, start_method="spawn", persistent_workers=True)
    ours, theirs = ([batch.fields[0].numpy().tobytes() for batch in fetch(one, 5)] for one in (job(), workers))
    assert theirs == ours


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_workers_are_gone_when_the_training_process_is_killed(runner: Runner, method: str) -> None:
    """By SIGKILL, at which it can do nothing itself: within four seconds no worker, server or tracker is left."""
    left: list[psutil.Process] = []

    def kill(event: str, pid: int, _: dict[str, Any]) -> None:
        if event == "window_opens":
            family = psutil.Process(pid).children(recursive=True)
            os.kill(pid, signal.SIGKILL)
            _, alive = psutil.wait_procs(family, timeout=4)
            left.extend(process for process in alive if process.status() != psutil.STATUS_ZOMBIE)
            left.extend(family[FAMILY[method] :])

    answer = runner.run(watch=kill, start_method=method, window_s=50)
    assert (answer.outcome, answer.kind) == ("crash", "SIGKILL")
    assert left == []
