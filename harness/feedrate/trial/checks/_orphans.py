"""A script that is started and ended, and what becomes of its workers.

A worker is defunct once it has ended, until its parent asks for its status. Orphans are adopted here, as by init, and
asked at once.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from signal import Signals

import psutil

from feedrate.machine.linux import adopt_orphans
from feedrate.machine.probes.procfs import remove_segments, shm_segments
from feedrate.schema.errors import TrialError
from feedrate.trial.checks import _process_1, listen
from feedrate.trial.checks._script import BY_ITSELF, READY

START_S = 90.0
"""Most time until the script trains; importing torch takes 2.5 to 5 s of it from a warm page cache."""
_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Ending:
    """How a training process and its workers ended, in seconds."""

    main_s: float
    """From the order to end until the training process had ended."""
    outlived_s: tuple[float | None, ...]
    """For each worker, from the training process' end until nothing of it was left; None for one that had to be killed
    in the end. Negative where it went first."""
    defunct: int
    """How many lay defunct in the end."""
    orphans: int
    """How many ended after the training process: defunct until whoever adopts them asks for their status."""
    segments: int
    """Files in shared memory that their dead makers left; removed."""


def watch(script: Sequence[str], ends_by: str, limit_s: float, *, nested: bool = False) -> Ending:
    """Start a script, have it end once it is ready, and watch its workers until they are gone, or for ``limit_s``.

    A script that ends by itself gets a line on stdin, else a signal. Nested, it has a process 1 that never waits.
    """
    adopt_orphans()
    before, pipe = shm_segments(), subprocess.PIPE
    command = [sys.executable, "-I", "-S", _process_1.__file__, *script] if nested else script
    family: list[psutil.Process] = []
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, bufsize=0) as started:
        try:
            _await_ready(started)
            main = psutil.Process(started.pid)
            family += main.children(recursive=True)
            if nested:
                main = main.children()[0].children()[0]
            workers = main.children(recursive=True)
            ordered = time.monotonic()
            if ends_by in BY_ITSELF and started.stdin:
                started.stdin.write(b"\n")
            else:
                main.send_signal(Signals[ends_by.upper()])
            gone = _watch(main, workers, limit_s)
            orphans = sum(worker.wait(0) is not None for worker in workers if worker in gone)
            defunct = sum(_has_ended(worker) for worker in workers if worker not in gone)
        finally:
            started.kill()
            started.wait()
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
                    process.wait()
    removed = remove_segments(shm_segments() - before, {process.pid for process in (main, *workers)})
    outlived_s = tuple(gone[worker] - gone[main] if worker in gone else None for worker in workers)
    return Ending(gone[main] - ordered, outlived_s, defunct, orphans, removed)


def _await_ready(started: subprocess.Popen[bytes]) -> None:
    output = listen(started.stdout.fileno(), START_S, READY) if started.stdout else b""
    if READY not in output:
        last_line = output.decode(errors="replace").strip().rpartition("\n")[2]
        raise TrialError(f"the training script did not begin to train within {START_S:g} s: {last_line}")


def _watch(main: psutil.Process, workers: Sequence[psutil.Process], limit_s: float) -> dict[psutil.Process, float]:
    """When the training process ended, and when nothing was left of each worker that went within the limit."""
    gone: dict[psutil.Process, float] = {}
    begun = time.monotonic()
    while len(gone) <= len(workers) and time.monotonic() < gone.get(main, begun) + limit_s:
        if main not in gone and _has_ended(main):
            gone[main] = time.monotonic()
        for worker in workers:
            if worker not in gone:
                with suppress(psutil.TimeoutExpired):
                    worker.wait(0)  # takes the status of an orphan
                    gone[worker] = time.monotonic()
        time.sleep(_LOOK_S)
    if main not in gone:
        raise TrialError(f"the training script had not ended after {limit_s:g} s; it was killed")
    return gone


def _has_ended(process: psutil.Process) -> bool:
    """Whether a process runs no more; one that nobody has asked for its status is defunct."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
