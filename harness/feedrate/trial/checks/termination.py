"""Whether workers are left behind when the training process ends, and for how long.

A training script runs in a fresh interpreter with two workers and is ended in the middle of its epoch: it returns,
raises, or gets a signal, which goes to the training process alone (as from ``kill``, a scheduler or the kernel's
out-of-memory killer; Ctrl-C in a terminal reaches the workers too).

The value is seconds from the end of the training process until the last worker was gone; the fact, that one still ran,
or lay defunct, after ``LIMIT_S``. PyTorch's workers look for their parent every 5 s (``MP_STATUS_CHECK_INTERVAL``), so
that they outlive it by that much: the evidence says so, and it is no leaving behind.

A worker is defunct once it has ended, until its parent asks for its status. Orphans are adopted here, as by init: each
is looked at, and then asked at once. How many there were is said. With ``first_process=never_waits`` the script runs in
a process namespace of its own, whose process 1 asks nobody, as in many containers.

Run as ``python -m feedrate.trial.checks.termination ENDS_BY plain|guarded`` this file is that script, as its user might
have written it. It prints ``ready`` when its workers deliver. Then it trains until a signal ends it, or waits for a
line on stdin to end by itself in the middle of the epoch.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from feedrate.machine.linux import adopt_orphans, die_with_parent
from feedrate.machine.probes.procfs import remove_segments, shm_segments
from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

LIMIT_S = 10.0
"""How long to wait for the training process after the order to end, and for its workers after its end; twice the
interval at which workers look for their parent."""
SEEN_S = 0.1
"""A worker that is gone so soon went with its parent."""
START_S = 90.0
"""Most time until the script trains; importing torch takes 2.5 to 5 s of it from a warm page cache."""
_LOOK_S = 0.01
WORKERS, STEP_S = 2, 0.01
"""A step's length: workers wait for the training process more than they work, as they should."""
_READY_AFTER = 5
"""Steps until every worker has delivered."""

_BY_ITSELF = {
    "return": "After the training script returned in the middle of an epoch",
    "exception": "After an exception in the training process",
}
NEVER_WAITS = """
import ctypes, os, signal, subprocess, sys
NEWPID, NEWUSER, PDEATHSIG = 0x20000000, 0x10000000, 1
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(NEWPID) and libc.unshare(NEWPID | NEWUSER):
    sys.exit("a process namespace cannot be made: " + os.strerror(ctypes.get_errno()))
if os.fork() == 0:
    libc.prctl(PDEATHSIG, signal.SIGKILL)
    script = subprocess.Popen(sys.argv[1:])
    while True:
        signal.pause()
os.wait()
"""
"""Starts a script below a process 1 that waits for nobody; all of them go when this goes."""
_GUARDS = {False: "plain PyTorch", True: "workers die with their parent, SIGTERM ends in order"}


@dataclass(slots=True)
class Worker:
    """One worker, watched; moments are on the monotonic clock, in seconds."""

    process: psutil.Process
    ended: float | None = None
    gone: float | None = None
    """When nothing of it was left."""
    orphan: bool = False
    """Whether it was seen defunct after its parent's end, and asked here."""

    def look(self) -> None:
        """Note what has become of it, and ask for its status where that has become our duty."""
        if self.gone is not None:
            return
        now = time.monotonic()
        try:
            if self.process.status() != psutil.STATUS_ZOMBIE:
                return
            with contextlib.suppress(ChildProcessError):  # still the training process' own, or asked already
                self.orphan = os.waitpid(self.process.pid, os.WNOHANG)[0] != 0
        except psutil.NoSuchProcess:
            pass
        self.ended = self.ended or now
        if not self.process.is_running():
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
    orphans: int
    """How many ended after the training process: defunct until whoever adopts them asks for their status."""
    segments: int
    """Files in shared memory that their dead makers left; removed."""
    limit_s: float


def check(job: Job) -> Finding:
    """End a training script as the axis ``ends_by`` says and see what becomes of its workers."""
    ends_by, guarded, nested = job.value("ends_by"), job.value("guarded"), job.value("first_process") == "never_waits"
    script = [sys.executable, "-P", "-m", __name__, ends_by, "guarded" if guarded else "plain"]
    if nested:
        script = [sys.executable, "-c", NEVER_WAITS, *script]
    return conclude(watch(script, ends_by, nested=nested), ends_by, guarded=guarded)


def conclude(ending: Ending, ends_by: str, *, guarded: bool) -> Finding:
    """Put what was seen into a finding."""
    count, stayed = len(ending.outlived_s), ending.outlived_s.count(None)
    last_s = max(ending.limit_s if outlived is None else outlived for outlived in ending.outlived_s)
    if stayed:
        fate = f"{stayed} of its {count} workers were still there {ending.limit_s:g} s later"
    elif last_s <= SEEN_S:
        fate = f"its {count} workers were gone by then"
    else:
        fate = f"the last of its {count} workers was gone {last_s:.1f} s later"
    lay = sum(defunct > SEEN_S for defunct in ending.defunct_s)
    defunct = f"{lay} lay defunct for up to {max(ending.defunct_s):.1f} s" if lay else "none lay defunct"
    if ending.orphans:
        defunct += f" ({ending.orphans} ended as orphans, whose status was asked for at once)"
    files = {0: "nothing was", 1: "1 file was"}.get(ending.segments, f"{ending.segments} files were")
    how = _BY_ITSELF.get(ends_by, f"After {ends_by.upper()} to the training process alone")
    return Finding(
        stayed > 0,
        max(0.0, last_s),
        f"{how} ({_GUARDS[guarded]}), it ended within {ending.main_s:.2f} s; {fate}, {defunct}, and {files} left in "
        "shared memory.",
    )


def watch(script: Sequence[str], ends_by: str, limit_s: float = LIMIT_S, *, nested: bool = False) -> Ending:
    """Start a script, have it end, and watch its workers until they are gone, or for ``limit_s``.

    The script prints ``ready`` when its workers work. A line on stdin has it return or raise; else it gets a signal.
    Where it is nested, it is the grandchild of what is started.
    """
    adopt_orphans()
    before = shm_segments()
    pipe = subprocess.PIPE
    workers: list[Worker] = []
    with subprocess.Popen(script, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, bufsize=0) as main:
        try:
            _await_ready(main)
            training = psutil.Process(main.pid)
            if nested:
                training = training.children()[0].children()[0]
            workers += map(Worker, training.children(recursive=True))
            ordered = time.monotonic()
            if ends_by in _BY_ITSELF and main.stdin:
                main.stdin.write(b"\n")
            else:
                training.send_signal(signal.Signals[ends_by.upper()])
            ended = _look_until(lambda: _has_ended(training), workers, ordered + limit_s)
            if not _has_ended(training):
                raise TrialError(f"the training script had not ended after {limit_s:g} s; it was killed")
            now = _look_until(lambda: all(worker.gone for worker in workers), workers, ended + limit_s)
            outlived = tuple(worker.gone and worker.gone - ended for worker in workers)
            defunct = tuple((worker.gone or now) - worker.ended if worker.ended else 0.0 for worker in workers)
        finally:
            main.kill()
            main.wait()
            for worker in workers:
                if worker.gone is None:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        worker.process.kill()
                        worker.process.wait(LIMIT_S)
    removed = remove_segments(shm_segments() - before, {main.pid, *(worker.process.pid for worker in workers)})
    return Ending(ended - ordered, outlived, defunct, sum(worker.orphan for worker in workers), removed, limit_s)


def _await_ready(main: subprocess.Popen[bytes]) -> None:
    output = b""
    while b"ready\n" not in output:
        more = b""
        if main.stdout and select.select([main.stdout], [], [], START_S)[0]:
            more = os.read(main.stdout.fileno(), 1 << 16)
        if not more:
            last_line = output.decode(errors="replace").strip().rpartition("\n")[2]
            raise TrialError(f"the training script did not begin to train within {START_S:g} s: {last_line}")
        output += more


def _has_ended(process: psutil.Process) -> bool:
    """Whether a process runs no more; one that nobody has asked for its status is defunct."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _look_until(ended: Callable[[], bool], workers: Sequence[Worker], deadline: float) -> float:
    """Look at the workers until something has ended, or its time is up; gives when that was."""
    while not ended() and time.monotonic() < deadline:
        for worker in workers:
            worker.look()
        time.sleep(_LOOK_S)
    return time.monotonic()


class _Numbers(Dataset[torch.Tensor]):
    """Samples that cost nothing, in an epoch that outlasts the check."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index))


def _loader(guarded: bool) -> DataLoader[torch.Tensor]:
    """Make the script's loader; workers are forked, as PyTorch does wherever Python's own default is fork."""
    main_process = os.getpid()
    return DataLoader(
        _Numbers(),
        batch_size=8,
        num_workers=WORKERS,
        multiprocessing_context="fork",
        worker_init_fn=(lambda _worker: die_with_parent(main_process)) if guarded else None,
    )


def _train(batches: Iterator[torch.Tensor], ends_by: str) -> None:
    """Train until something ends it."""
    for step, batch in enumerate(batches, start=1):
        batch.mean().item()
        time.sleep(STEP_S)
        if step == _READY_AFTER:
            print("ready", flush=True)  # noqa: T201 - the word that the check waits for
            if ends_by in _BY_ITSELF:
                sys.stdin.readline()
            if ends_by == "return":
                return
            if ends_by == "exception":
                raise RuntimeError("planted: the training step failed")


if __name__ == "__main__":
    _ends_by, _guards = sys.argv[1:]
    # A template ignores SIGINT, and what is ignored stays so in what it starts; a script from a shell starts like this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if _guards == "guarded":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Held by the module: it lives until the interpreter takes itself down.
    _batches = iter(_loader(_guards == "guarded"))
    _train(_batches, _ends_by)
