"""Whether workers are left behind when the training process ends, and for how long.

A training script runs in a fresh interpreter with two workers and is ended in the middle of its epoch: it returns,
raises, or gets a signal, which goes to the training process alone (as from ``kill``, a scheduler or the kernel's
out-of-memory killer; Ctrl-C in a terminal reaches the workers too).

The value is seconds from the end of the training process until the last worker was gone; the fact, that one still ran,
or lay defunct, after ``LIMIT_S``. PyTorch's workers look for their parent every 5 s (``MP_STATUS_CHECK_INTERVAL``), so
that they outlive it by that much: the evidence says so, and it is no leaving behind.

A worker is defunct once it has ended, until its parent asks for its status. Orphans are adopted here, as by init: each
is looked at, and then asked at once. How many there were is said: in a container whose first process asks nobody they
would stay defunct for good.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from feedrate.machine.linux import adopt_orphans, die_with_parent
from feedrate.machine.probes.procfs import remove_segments, shm_segments
from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

LIMIT_S = 10.0
"""How long to wait for each: the training process after the order to end, and its workers after its end; twice the
interval at which workers look for their parent."""
SEEN_S = 0.1
"""A worker that is gone so soon went with its parent."""
START_S = 90.0
"""Most time until the script trains; importing torch takes 2.5 to 5 s of it from a warm page cache."""
_LOOK_S = 0.01
WORKERS = 2
STEP_S = 0.01
"""A step's length: workers wait for the training process more than they work, as they should."""
_READY_AFTER = 5
"""Steps until every worker has delivered."""

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

    process: psutil.Process
    ended: float | None = None
    """When it had ended, on the monotonic clock in seconds."""
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
            self.ended = self.ended or now
            with contextlib.suppress(ChildProcessError):  # still the training process' own, or asked already
                self.orphan = os.waitpid(self.process.pid, os.WNOHANG)[0] != 0
        except psutil.NoSuchProcess:
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
    limit_s: float = LIMIT_S

    @property
    def last_s(self) -> float:
        """Seconds until the last worker was gone; the limit for one that stayed."""
        return max((self.limit_s if outlived is None else outlived for outlived in self.outlived_s), default=0.0)


def check(job: Job) -> Finding:
    """End a training script as the axis ``ends_by`` says and see what becomes of its workers."""
    ends_by, guarded = job.value("ends_by"), job.value("guarded")
    script = [sys.executable, "-P", "-m", __name__, ends_by, "guarded" if guarded else "plain"]
    return conclude(watch(script, ends_by), ends_by, guarded=guarded)


def conclude(ending: Ending, ends_by: str, *, guarded: bool) -> Finding:
    """Put what was seen into a finding."""
    stayed, count = sum(outlived is None for outlived in ending.outlived_s), len(ending.outlived_s)
    lay = sum(defunct > SEEN_S for defunct in ending.defunct_s)
    ended = f"{_HOW[ends_by]} ({_GUARDS[guarded]}), it ended within {ending.main_s:.2f} s"
    if stayed:
        fate = f"{stayed} of its {count} workers were still there {ending.limit_s:g} s later"
    elif ending.last_s <= SEEN_S:
        fate = f"its {count} workers were gone by then"
    else:
        fate = f"the last of its {count} workers was gone {ending.last_s:.1f} s later"
    defunct = f"{lay} lay defunct for up to {max(ending.defunct_s):.1f} s" if lay else "none lay defunct"
    if ending.orphans:
        defunct += f" ({ending.orphans} ended as orphans, whose status was asked for at once)"
    files = {0: "nothing was", 1: "1 file was"}.get(ending.segments, f"{ending.segments} files were")
    return Finding(
        stayed > 0,
        max(0.0, ending.last_s),
        f"{ended}; {fate}, {defunct}, and {files} left in shared memory.",
    )


def watch(script: Sequence[str], ends_by: str, limit_s: float = LIMIT_S) -> Ending:
    """Start a script, have it end, and watch its workers until they are gone, or for ``limit_s``.

    The script prints ``ready`` when its workers work. A line on stdin has it return or raise; else it gets a signal.
    """
    adopt_orphans()
    before = shm_segments()
    pipe = subprocess.PIPE
    workers: list[Worker] = []
    with subprocess.Popen(script, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as main:
        try:
            _await_ready(main)
            workers += map(Worker, psutil.Process(main.pid).children(recursive=True))
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
            _clear(workers)
    removed = remove_segments(shm_segments() - before, {main.pid, *(worker.process.pid for worker in workers)})
    return Ending(main_s, outlived, defunct, sum(worker.orphan for worker in workers), removed, limit_s)


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
    ordered = time.monotonic()
    if ends_by in ("return", "exception"):
        order: Any = main.stdin
        order.write("\n")
        order.flush()
    else:
        main.send_signal(signal.Signals[ends_by.upper()])
    while main.poll() is None:
        for worker in workers:
            worker.look()
        if time.monotonic() > ordered + limit_s:
            raise TrialError(f"the training script had not ended after {limit_s:g} s; it was killed")
        with contextlib.suppress(subprocess.TimeoutExpired):
            main.wait(_LOOK_S)
    ended = time.monotonic()
    return ended - ordered, ended


def _clear(workers: list[Worker]) -> None:
    """Kill and reap what is left."""
    for worker in workers:
        if worker.gone is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.process.kill()
                worker.process.wait(LIMIT_S)


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
            if ends_by in ("return", "exception"):
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
