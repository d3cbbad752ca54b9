"""Worker processes: of every start method, which end with their trial."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from beside import tried

from feedrate.loaders import Batch
from feedrate.schema.plugins import ROOT
from feedrate.sweep.launcher import Template
from feedrate.trial.job import Job

METHODS = ("fork", "spawn", "forkserver")
NEW_INTERPRETERS_S = 120
"""Two interpreters that import torch beside other work."""


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_batches_epoch_after_epoch(
    job: Callable[..., Job], fetch: Callable[[Job, int], list[Batch]], method: str
) -> None:
    """A new interpreter that got everything in a pickle reads what this process reads; kept workers and new ones."""

    def batches(**cell: object) -> list[bytes]:
        return [batch.fields[0].numpy().tobytes() for batch in fetch(job(**cell), 5)]

    cell, expected = {"num_workers": 1, "epoch_steps": 3, "start_method": method}, batches()
    assert batches(**cell, persistent_workers=True) == expected
    assert batches(**cell) == expected


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_trial_leaves_nothing_behind(job: Callable[..., Job], method: str) -> None:
    """Neither workers nor their server nor the tracker of their semaphores; start-up is in its column."""
    asked = json.dumps(asdict(job(num_workers=2, start_method=method)))
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with Template() as template:
        seen: set[int] = set()

        def watch(event: str, pid: int, _: dict[str, Any]) -> None:
            if event == "first_batch":
                seen.update(process.pid for process in psutil.Process(pid).children(recursive=True))

        answer = template.run(asked, timeout_s=NEW_INTERPRETERS_S, watch=watch)
        assert answer.outcome == "ok", answer.message
        assert answer.left_processes == 0
        assert len(seen) == {"fork": 2, "spawn": 3, "forkserver": 4}[method]
        assert not any(psutil.pid_exists(pid) for pid in seen)
    assert {process.pid for process in psutil.Process().children(recursive=True)} == before
    startup_s = answer.result["row"]["startup_ns"] / 1e9
    assert startup_s > 1 or method == "fork"


TRAINING = """
import json, sys
import torch
from feedrate.trial import feed
from feedrate.trial.job import Job
if __name__ == "__main__":
    opened = feed.open_feed(Job(**json.loads(sys.argv[1])), torch.device("cpu"))
    print("ready", flush=True)
    while True:
        next(opened.batches)
"""


@pytest.mark.slow
@tried
@pytest.mark.parametrize("method", METHODS)
def test_workers_are_gone_when_the_training_process_is_killed(
    job: Callable[..., Job], tmp_path: Path, method: str
) -> None:
    """By SIGKILL, at which it can do nothing itself: within four seconds no worker, server or tracker is left."""
    asked = json.dumps(asdict(job(num_workers=2, start_method=method)))
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    command, environment = [sys.executable, os.fspath(script), asked], os.environ | {"PYTHONPATH": os.fspath(ROOT)}
    training = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    assert training.stdout is not None
    assert training.stdout.readline() == b"ready\n"
    training.stdout.close()
    family = psutil.Process(training.pid).children(recursive=True)
    training.kill()
    training.wait()
    until = time.monotonic() + 4
    while any(map(running, family)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(running, family))


def running(process: psutil.Process) -> bool:
    """Whether it still runs; the dead may wait to be reaped."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
