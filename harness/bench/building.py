"""What it takes to build a website: time, and the memory of all processes that take part.

The build is the command that people type, the start of Python included.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.errors import FeedrateError
from harness.registry import ROOT

_LOOK_S = 0.3
"""Between two looks at the memory: the kernel walks all pages of a process for one."""


@dataclass(frozen=True, slots=True)
class Built:
    """A site, and what building it took."""

    what: str
    """Whose: ``5 measured runs``, ``100 made-up machines, 10,400 trials``."""
    folder: Path
    took_s: float
    peak_bytes: int
    """Memory of the build and all of its processes, at most; a page that several share counts once."""


def build(what: str, results: Path, out: Path) -> Built:
    """Build a site in a process of its own and watch it to its end; an interrupt ends it and all that it started.

    Args:
        what: whose results these are, in words.
        results: the folder of runs.
        out: gets the site.

    Raises:
        FeedrateError: it was not built.
    """
    command = [sys.executable, "-m", "harness", "site", "--results", str(results.resolve()), "--out", str(out)]
    # What it says goes to a file: a pipe that nobody reads meanwhile would stop a build that says much.
    with tempfile.TemporaryFile() as said:
        begun = time.perf_counter()
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        ) as building:
            try:
                peak = peak_bytes(building)
            finally:
                if building.poll() is None:
                    os.killpg(building.pid, signal.SIGKILL)
        took = time.perf_counter() - begun
        said.seek(0)
        told = said.read().decode(errors="replace").strip()
    if building.returncode:
        raise FeedrateError(f"bench: the site of {what} was not built: {told or building.returncode}")
    return Built(what, out / "site", took, peak)


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
        now = 0
        with suppress(psutil.Error):
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    now += each.memory_full_info().pss
        peak = max(peak, now)
        time.sleep(_LOOK_S)
    return peak
