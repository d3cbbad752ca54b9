"""What a command takes, as people type it: time, start of Python included, and the memory of all of its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

import psutil

from harness.registry import ROOT

_LOOK_S = 0.3
"""Between two looks at the memory: the kernel walks all pages of a process for one."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    status: int
    took_s: float
    peak_bytes: int | None
    """Memory of the command and of all processes below it, the most that three looks a second saw; a page that several
    share counts once. None: nobody looked."""
    printed: str
    complained: str
    """What it wrote to stderr."""


def harness(*arguments: str, memory: bool = False) -> Ended:
    """Run a command of feedrate and watch it to its end; an interrupt ends it and all that it started.

    Args:
        arguments: behind ``python -m harness``.
        memory: look at it, which takes some of the time of what is looked at.
    """
    command = [sys.executable, "-m", "harness", *arguments]
    # What it says goes to files: a pipe that nobody reads meanwhile would stop a command that says much.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.perf_counter()
        with subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err, start_new_session=True) as running:
            try:
                peak = peak_bytes(running) if memory else None
                running.wait()
            finally:
                if running.poll() is None:
                    os.killpg(running.pid, signal.SIGKILL)
        took = time.perf_counter() - begun
        return Ended(running.returncode, took, peak, _read(out), _read(err))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()


def peak_bytes(running: subprocess.Popen[bytes]) -> int:
    """Watch a process and all below it until it ends.

    Args:
        running: the process.

    Returns:
        The largest sum of their proportional set sizes, three looks a second: a page that n of them share counts 1 ÷ n
        for each. Resident sizes would count the libraries that all of them have loaded once for each.
    """
    process, peak = psutil.Process(running.pid), 0
    while running.poll() is None:
        peak = max(peak, _held_bytes([process, *_below(process)]))
        with suppress(subprocess.TimeoutExpired):
            running.wait(_LOOK_S)
    return peak


def _below(process: psutil.Process) -> Sequence[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return ()


def _held_bytes(family: Sequence[psutil.Process]) -> int:
    held = 0
    for each in family:
        with suppress(psutil.Error):  # it may have ended meanwhile
            held += each.memory_full_info().pss
    return held
