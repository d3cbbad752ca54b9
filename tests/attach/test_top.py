"""``feedrate top``: a training that runs is looked at from outside, and what cannot be seen is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from attaching import Place, ended

from feedrate.attach import profiler, top
from feedrate.schema.errors import EnvironmentFault, InputError


def _trains(pid: int) -> bool:
    """Whether a process has loaded what it needs and gets batches."""
    words = [str(profiler.program()), "dump", "--pid", str(pid)]
    stack = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return "dataloader.py" in stack and "importlib" not in stack


@pytest.fixture
def sleeping(request: pytest.FixtureRequest) -> Iterator[int]:
    """A process that sleeps, by its words."""
    with subprocess.Popen(request.param) as process:
        yield process.pid
        process.kill()


@pytest.mark.slow
def test_a_training_that_runs_is_seen(tmp_path: Path) -> None:
    """Waits are near the script's own clock, workers and their hot line are named, and the training goes on."""
    place = Place(tmp_path)
    words = ["--workers", "2", "--sample-ms", "4", "--step-ms", "8", "--steps", "280"]
    process = place.start(sys.executable, place.planted(), *words)
    while len(psutil.Process(process.pid).children()) < 2:  # workers
        time.sleep(0.05)
    seen = top.look(process.pid, 2)
    assert process.poll() is None
    done = ended(process)
    clock = json.loads(done.out)
    assert done.status == 0
    waits = seen.rows["waiting"] + seen.rows.get("receiving", 0)
    assert waits == pytest.approx(sum(clock["waits"]) / sum(clock["walls"]), abs=0.15)
    assert sum(seen.rows.values()) == pytest.approx(1)
    assert seen.workers == 2
    assert seen.preparing_share > 0.7
    assert seen.lines["waiting"][0].code.endswith("# the hot line")
    assert any(about == "time" and "waiting for a batch" in line for about, line in top.text(seen))
    assert seen.machine["cpu_util_pct"] > 0
    assert place.left() == []


@pytest.mark.slow
def test_below_a_launcher_the_process_that_trains_is_seen(tmp_path: Path) -> None:
    """As below torchrun: what it started is named, and its own batches are no workers'."""
    place = Place(tmp_path)
    train = [sys.executable, place.planted(), "--sample-ms", "4", "--step-ms", "8", "--steps", "280"]
    process = place.start(sys.executable, "-c", f"import subprocess; subprocess.run({train!r})")
    while not (below := psutil.Process(process.pid).children()) or not _trains(below[0].pid):
        assert process.poll() is None
        time.sleep(0.05)
    seen = top.look(process.pid, 2)
    ended(process)
    assert (seen.above, seen.pid) == (process.pid, below[0].pid)
    assert f"process {seen.pid}, below {process.pid}, " in dict(top.text(seen))[""]
    assert "its processes" in dict(top.text(seen))["machine"]
    assert seen.rows["here"] > 0.5
    assert seen.workers == 0


@pytest.mark.slow
@pytest.mark.parametrize("sleeping", [[sys.executable, "-c", "import time; time.sleep(60)"]], indirect=True)
def test_a_python_without_a_loader_is_said(sleeping: int) -> None:
    """Where no DataLoader is at work that is said, and no waits are."""
    lines = dict(top.text(top.look(sleeping, 1)))
    assert lines["data"] == "no DataLoader was at work"
    assert "time" not in lines


@pytest.mark.slow
@pytest.mark.parametrize("sleeping", [["sleep", "60"]], indirect=True)
def test_what_is_no_python_is_one_line(sleeping: int) -> None:
    """Of a process that is no Python, and of one that is none, one line says so, with its exit status."""
    with pytest.raises(EnvironmentFault, match="py-spy saw nothing"):
        top.look(sleeping, 1)
    with pytest.raises(InputError, match=f"no process {2**22 + 1}; expected the id of a training that runs"):
        top.look(2**22 + 1, 1)


@pytest.mark.slow
def test_a_process_of_another_user_is_said_with_what_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where py-spy may not read a process, the line says how to allow it."""
    refused = tmp_path / "py-spy"
    refused.write_text("#!/bin/sh\necho 'Error: Permission Denied: Try running again with elevated permissions' >&2\n")
    refused.chmod(0o700)
    monkeypatch.setattr(profiler, "program", lambda: str(refused))
    for user, words in (
        (0, "top: py-spy may not read"),
        (12345, "top: process 1 is another user's: sudo feedrate top 1"),
    ):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with pytest.raises(EnvironmentFault, match=rf"{words}.* SYS_PTRACE; .* sudo sysctl"):
            top.look(1, 0.3)
