"""Whether workers are left behind when the training process ends, and for how long.

A training script runs in a fresh interpreter with two workers and is ended in the middle of its epoch: it returns,
raises, or gets a signal, which goes to the training process alone (as from ``kill``, a scheduler or the kernel's
out-of-memory killer; Ctrl-C in a terminal reaches the workers too). Every process is watched through its pidfd, so that
no other can be mistaken for it.

The value is seconds from the end of the training process until the last worker was gone; the fact, that this took, or
a worker lay defunct for, more than ``GRACE_S``. A worker is defunct once it has ended, until its parent asks for its
status. Orphans are adopted and asked at once here, as a good init does: it does *not* show what they would become in a
container whose first process does not care for them, where they stay defunct for good.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from feedrate.machine.linux import adopt_orphans
from feedrate.machine.probes.procfs import descendants, remove_segments, shm_segments
from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

GRACE_S = 0.5
"""A worker that is gone so soon was not left behind."""
LIMIT_S = 12.0
"""How long to wait for each: the training process after the order to end, and its workers after its end."""
START_S = 90.0
"""Most time until the script trains; importing torch takes 2.5 to 5 s of it from a warm page cache."""
_LOOK_S = 0.01

_HOW = {
    "return": "After the training script returned in the middle of an epoch",
    "exception": "After an exception in the training process",
    "sigint": "After SIGINT to the training process alone",
    "sigterm": "After SIGTERM to the training process alone",
    "sigkill": "After SIGKILL to the training process alone",
}
_GUARDS = {False: "plain PyTorch", True: "workers die with their parent, SIGTERM ends in order"}


@dataclass(slots=True)
class Worker:
    """One worker, watched."""

    pid: int
    pidfd: int
    ended: float | None = None
    """When it had ended, on the monotonic clock in seconds."""
    gone: float | None = None
    """When nothing of it was left."""

    def look(self) -> None:
        """Note what has become of it, and ask for its status where that has become our duty."""
        now = time.monotonic()
        if self.ended is None and _has_ended(self.pidfd):
            self.ended = now
        if self.ended is not None and self.gone is None:
            with contextlib.suppress(ChildProcessError):  # still the training process' own, or asked already
                os.waitpid(self.pid, os.WNOHANG)
            if not _exists(self.pidfd):
                self.gone = now


@dataclass(frozen=True, slots=True)
class Ending:
    """How a training process and its workers ended, in seconds."""

    main_s: float
    """From the order to end until the training process had ended."""
    outlived_s: tuple[float | None, ...]
    """For each worker, from the training process' end until nothing of it was left; None for one that had to be killed
    after ``limit_s``. Negative where it went first."""
    defunct_s: tuple[float, ...]
    """For each, how long it lay defunct."""
    segments: int
    """Files in shared memory that their dead makers left; removed."""
    limit_s: float = LIMIT_S

    @property
    def last_s(self) -> float:
        """Seconds until the last worker was gone; the limit for one that stayed."""
        return max((self.limit_s if outlived is None else outlived for outlived in self.outlived_s), default=0.0)


def check(job: Job) -> Finding:
    """End a training script as the axis ``ends_by`` says and see what becomes of its workers."""
    ends_by, guarded = job.value("ends_by"), job.value("guarded")
    script = [sys.executable, "-P", "-m", "feedrate.trial.checks._training", ends_by, "guarded" if guarded else "plain"]
    return conclude(watch(script, ends_by), ends_by, guarded=guarded)


def conclude(ending: Ending, ends_by: str, *, guarded: bool) -> Finding:
    """Put what was seen into a finding."""
    left = [outlived is None or outlived > GRACE_S for outlived in ending.outlived_s]
    lay = [defunct > GRACE_S for defunct in ending.defunct_s]
    stayed, count = sum(outlived is None for outlived in ending.outlived_s), len(left)
    ended = f"{_HOW[ends_by]} ({_GUARDS[guarded]}), it ended within {ending.main_s:.2f} s"
    if stayed:
        fate = f"{stayed} of its {count} workers were still there {ending.limit_s:g} s later"
    elif any(left):
        fate = f"{sum(left)} of its {count} workers outlived it, the last by {ending.last_s:.1f} s"
    elif ending.last_s <= _LOOK_S:
        fate = f"its {count} workers were gone by then"
    else:
        fate = f"its {count} workers were gone {ending.last_s:.2f} s later"
    defunct = f"{sum(lay)} lay defunct for up to {max(ending.defunct_s):.1f} s" if any(lay) else "none lay defunct"
    files = {0: "nothing was", 1: "1 file was"}.get(ending.segments, f"{ending.segments} files were")
    return Finding(
        any(left) or any(lay),
        max(0.0, ending.last_s),
        f"{ended}; {fate}, {defunct}, and {files} left in shared memory.",
    )


def watch(script: Sequence[str], ends_by: str, limit_s: float = LIMIT_S) -> Ending:
    """Start a script, have it end, and watch its workers until they are gone.

    Args:
        script: command that prints ``ready`` when its workers work, and ends by itself on a line from stdin.
        ends_by: ``return``, ``exception`` (by itself), or the name of a signal in small letters.
        limit_s: longest wait for the training process, and for its workers after it.
    """
    adopt_orphans()
    before = shm_segments()
    pipe = subprocess.PIPE
    workers: list[Worker] = []
    with subprocess.Popen(script, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as main:
        try:
            _await_ready(main)
            workers += [Worker(pid, os.pidfd_open(pid)) for pid in descendants(main.pid)]
            main_s, ended = _end(main, ends_by, workers, limit_s)
            while any(worker.gone is None for worker in workers) and time.monotonic() < ended + limit_s:
                for worker in workers:
                    worker.look()
                time.sleep(_LOOK_S)
            now = time.monotonic()
            outlived = tuple(None if worker.gone is None else worker.gone - ended for worker in workers)
            defunct = tuple((w.gone or now) - w.ended if w.ended else 0.0 for w in workers)
        finally:
            main.kill()
            main.wait()
            _clear(workers, limit_s)
    removed = remove_segments(shm_segments() - before, {main.pid, *(worker.pid for worker in workers)})
    return Ending(main_s, outlived, defunct, removed, limit_s)


def _await_ready(main: subprocess.Popen[str]) -> None:
    output: Any = main.stdout
    ready, _, _ = select.select([output], [], [], START_S)
    if not ready or output.readline() != "ready\n":
        main.kill()
        main.wait()
        errors: Any = main.stderr
        # What is there, not until its end: workers hold the pipe too.
        there = select.select([errors], [], [], 0)[0]
        text = os.read(errors.fileno(), 1 << 16).decode(errors="replace") if there else ""
        last_line = text.strip().rpartition("\n")[2]
        raise TrialError(f"the training script did not begin to train within {START_S:g} s: {last_line}")


def _end(main: subprocess.Popen[str], ends_by: str, workers: list[Worker], limit_s: float) -> tuple[float, float]:
    """Have the training process end, and look at its workers meanwhile; gives how long that took, and when it ended."""
    pidfd = os.pidfd_open(main.pid)
    try:
        ordered = time.monotonic()
        if ends_by in ("return", "exception"):
            order: Any = main.stdin
            order.write("\n")
            order.flush()
        else:
            main.send_signal(signal.Signals[ends_by.upper()])
        while not _has_ended(pidfd, _LOOK_S):
            for worker in workers:
                worker.look()
            if time.monotonic() > ordered + limit_s:
                raise TrialError(f"the training script had not ended after {limit_s:g} s; it was killed")
        ended = time.monotonic()
        main.wait()
        return ended - ordered, ended
    finally:
        os.close(pidfd)


def _clear(workers: list[Worker], limit_s: float) -> None:
    """Kill and reap what is left."""
    for worker in workers:
        if worker.gone is None and _exists(worker.pidfd):
            signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
            _has_ended(worker.pidfd, max(limit_s, LIMIT_S))
            worker.look()
        os.close(worker.pidfd)


def _has_ended(pidfd: int, within_s: float = 0.0) -> bool:
    """Whether a process has ended, or does so within some seconds; defunct ones have."""
    return bool(select.select([pidfd], [], [], within_s)[0])


def _exists(pidfd: int) -> bool:
    """Whether anything of a process is left, be it defunct."""
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return False
    return True
