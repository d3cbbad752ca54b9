"""Workers that are left behind are seen, however they stay; those that go with their parent are not."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from beside import tried

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import termination
from feedrate.trial.checks.termination import Ending, conclude, watch
from feedrate.trial.job import Job


def script(worker: str, end: str = "") -> list[str]:
    """A training process with two workers, which do ``worker`` and call ``up``; told to end, it does ``end``."""
    code = f"""
        import ctypes, os, pathlib, signal, sys, time
        awake, waking = os.pipe()
        def up():
            os.write(waking, b".")
        def worker():
            {worker}
        workers = []
        for _ in range(2):
            pid = os.fork()
            if not pid:
                worker()
                os._exit(0)
            workers.append(pid)
        for _ in workers:
            os.read(awake, 1)
        print("ready", flush=True)
        sys.stdin.readline()
        {end}
    """
    return [sys.executable, "-c", textwrap.dedent(code)]


STAYS = "up(); time.sleep(60)"
REAPS = "[os.kill(pid, 9) or os.waitpid(pid, 0) for pid in workers]"


def ended(worker: str, end: str, ends_by: str, limit_s: float = 3.0) -> tuple[Ending, list[psutil.Process]]:
    """How such a script ended, and which of its processes are still there."""
    before = set(psutil.Process().children(recursive=True))
    ending = watch(script(worker, end), ends_by, limit_s)
    return ending, list(set(psutil.Process().children(recursive=True)) - before)


@pytest.mark.slow
@tried
@pytest.mark.parametrize("ends_by", ["sigkill", "return"])
def test_workers_that_ignore_death_are_left_behind(ends_by: str) -> None:
    """Workers that stay when their parent ends make the claim true, are timed up to the limit, and then killed."""
    ending, left = ended(STAYS, "os._exit(0)", ends_by, limit_s=0.6)
    assert ending.outlived_s == (None, None)
    finding = conclude(ending, ends_by, guarded=False)
    assert finding.fact
    assert finding.value == 0.6
    assert "2 of its 2 workers were still there 0.6 s later" in finding.evidence
    assert left == []


def test_shared_memory_that_is_left_is_counted_and_removed() -> None:
    """Files that carry a dead worker's id are counted and removed; those of others are left alone."""
    mine = os.getpid()
    foreign = Path(f"/dev/shm/torch_{mine}_4242_0")
    leaves = f'pathlib.Path(f"/dev/shm/torch_{{os.getpid()}}_1_{mine}").touch(); up(); time.sleep(60)'
    try:
        command = script(leaves, REAPS)
        command[-1] = command[-1].replace("sys.stdin", f"pathlib.Path({str(foreign)!r}).touch(); sys.stdin")
        ending = watch(command, "return", 3.0)
        assert ending.segments == 2
        assert "2 files were left in shared memory" in conclude(ending, "return", guarded=False).evidence
        assert foreign.exists()
        assert not list(Path("/dev/shm").glob(f"torch_*_1_{mine}"))
    finally:
        foreign.unlink(missing_ok=True)


def test_a_script_that_does_not_start_says_why() -> None:
    """What the script said last is in the error: the check could not be made."""
    with pytest.raises(TrialError, match=r"did not begin to train.*no such luck"):
        watch([sys.executable, "-c", "raise SystemExit('no such luck')"], "return")


def test_a_script_that_does_not_end_is_killed() -> None:
    """A training process that ignores the order is killed, workers and all, and the check fails."""
    begun = time.time()
    with pytest.raises(TrialError, match=r"had not ended after 0\.5 s"):
        ended(STAYS, "time.sleep(60)", "return", limit_s=0.5)
    assert time.time() - begun < 30
    young = [p for p in psutil.Process().children(recursive=True) if p.create_time() > begun]
    assert not [p for p in young if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
@tried
def test_a_first_process_that_never_waits_keeps_them() -> None:
    """Real workers of a killed training process end within seconds, and lie defunct for good; they go with it here."""
    cell = {"mode": "check", "ends_by": "sigkill", "guarded": False, "first_process": "never_waits"}
    begun = time.time()
    finding = termination.check(Job("trial", cell=cell))
    assert finding.fact
    assert "2 of its 2 workers were still there 10 s later, 2 lay defunct" in finding.evidence
    assert not [p for p in psutil.Process().children(recursive=True) if p.create_time() > begun]


@pytest.mark.slow
@pytest.mark.parametrize(("ends_by", "guarded"), [("return", False), ("sigterm", False), ("sigkill", True)])
@tried
def test_every_ending(ends_by: str, guarded: bool) -> None:
    """Real workers: plain PyTorch's live on for seconds after SIGTERM alone; none is left behind."""
    finding = termination.check(Job("trial", cell={"mode": "check", "ends_by": ends_by, "guarded": guarded}))
    assert not finding.fact, finding.evidence
    outlived = not guarded and ends_by == "sigterm"
    assert (0.5 < finding.value < termination.LIMIT_S) == outlived, finding.evidence
    if ends_by == "sigkill":
        assert finding.value < termination.SEEN_S
        assert finding.evidence.startswith("After SIGKILL to the training process alone (workers die with their parent")
        assert "nothing was left in shared memory" in finding.evidence
