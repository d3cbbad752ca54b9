"""Worker processes, which end with their trial."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from warm import Runner

pytestmark = pytest.mark.slow
CELL = {"workload": "synthetic", "mode": "load", "storage_format": "memmap", "patch_size": 8, "n_samples": 24}
CELL |= {"batch_size": 4, "num_workers": 1, "prefetch_factor": 2}
FAMILY = {"fork": 1, "forkserver": 3}
"""Start method to the processes below a trial with one worker: a tracker of semaphores, a server."""


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
