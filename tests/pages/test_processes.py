"""Processes that make pages end with the build, whatever ends that, and leave its words to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from feedrate.pages import processes
from feedrate.schema.errors import EnvironmentFault
from feedrate.site import build as site_build

_BUILD = """
import os, time
from feedrate.pages import processes
with processes.start_pool() as pool:
    busy = [pool.submit(time.sleep, 60)]
    pids = {pool.submit(os.getpid).result() for _ in range(8)} | set(pool._processes)
    print(*pids, flush=True)
    busy[0].result()
"""
_SOON_S = 20


@pytest.fixture
def build() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that has others make pages, as leader of a group, and the ids of the others."""
    process = subprocess.Popen(
        [sys.executable, "-c", _BUILD],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    pids = [int(pid) for pid in process.stdout.readline().split()]
    yield process, pids
    for pid in (process.pid, *pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def gone(pids: list[int]) -> bool:
    """Whether processes have ended, or do so soon; that somebody has to ask how they ended is not theirs."""
    end = time.monotonic() + _SOON_S
    while any(map(runs, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_build_that_is_killed_leaves_nothing(build: tuple[subprocess.Popen[str], list[int]]) -> None:
    """Even busy processes end when the one that they work for is gone."""
    process, pids = build
    assert len(pids) > 1
    process.kill()
    process.wait()
    assert gone(pids)


@pytest.mark.slow
def test_ctrl_c_is_answered_once(build: tuple[subprocess.Popen[str], list[int]]) -> None:
    """All processes of a terminal get the signal; only the one that was started there says so, and at once."""
    process, pids = build
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=_SOON_S)[1]
    assert said.count("Traceback") == said.count("KeyboardInterrupt") == 1
    assert "Process " not in said
    assert gone(pids)


@pytest.mark.slow
def test_a_process_that_was_ended_is_explained(tmp_path: Path) -> None:
    """As the system ends one where memory runs out: the message says what to do."""
    with (
        pytest.raises(EnvironmentFault, match="expected 2 GB of free memory"),
        site_build._explained(tmp_path),
        processes.start_pool() as pool,
    ):
        pool.submit(signal.raise_signal, signal.SIGKILL).result()
