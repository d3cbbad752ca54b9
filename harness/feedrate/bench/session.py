"""What the sections of a bench share: where they write, jobs in forked children, commands watched to their end."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from rich.console import Console

from feedrate.schema.axes import AXES, Value, applicable
from feedrate.schema.errors import FeedrateError, TrialError
from feedrate.schema.words import plural
from feedrate.store.bench_record import WitnessedTrial
from feedrate.sweep.launcher import Template, Watch

_TIMEOUT_S = 120.0
_LOOK_S = 0.3
"""Between two looks at the memory: the kernel walks all pages of a process for one."""


class Figure(NamedTuple):
    """One figure that feedrate promises of itself: a ``Promise`` that does not know its section yet."""

    what: str
    target: str
    measured: str
    met: bool | None
    """None: it cannot be measured on this machine, and ``measured`` says why."""


def judge(
    what: str,
    bound: str,
    values: Sequence[float],
    *,
    digits: int,
    unit: str = "",
    counted: str = "",
    note: str = "",
) -> Figure:
    """Hold the median of some values against a bound.

    Args:
        what: was measured.
        bound: ``≤ 50 ms``, ``≥ 0.9``: a sign, a number in the unit of the values, words.
        values: one a round.
        digits: behind the decimal point.
        unit: behind the median.
        counted: what a value is one of.
        note: stands behind the measured values: ``52 ms (48–61, n = 25 loads)``.
    """
    sign, number, *_ = bound.replace(",", "").replace("×", "").split()
    median = statistics.median(values)
    n = plural(len(values), counted) if counted else str(len(values))
    measured = f"{median:.{digits}f}{unit} ({min(values):.{digits}f}–{max(values):.{digits}f}, n = {n}){note}"
    return Figure(what, bound, measured, median <= float(number) if sign == "≤" else median >= float(number))


def seconds(action: Callable[[], object]) -> float:
    """Take the time of an action."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def cell(device: str, **axes: Value) -> dict[str, Value]:
    """Make a cell of the axes that apply; what is not named stands at its default."""
    return applicable({axis.name: axis.default for axis in AXES} | axes, device)[0]


@dataclass(frozen=True, slots=True)
class Session:
    """A bench that is under way."""

    console: Console
    folder: Path
    """Temporary: packed samples, a sweep's results, its site."""
    results: Path
    """Where runs are read from."""
    device: str
    """cpu or cuda."""
    machine_id: str
    witnessed: list[WitnessedTrial] = field(default_factory=list)
    """Trials beside an external clock; the section accuracy adds them."""

    def ask(
        self,
        template: Template,
        kind: str,
        cell: Mapping[str, Value],
        watch: Watch = lambda *_: None,
        **more: Any,
    ) -> dict[str, Any]:
        """Have a forked child do a job and return its result.

        Raises:
            TrialError: it failed.
        """
        job = {"kind": kind, "device": self.device, "cell": dict(cell), "data_root": str(self.folder / "data"), **more}
        answer = template.run(json.dumps(job), timeout_s=_TIMEOUT_S, watch=watch)
        if answer.outcome != "ok":
            raise TrialError(f"bench: a trial ended with {answer.outcome}: {answer.kind}: {answer.message}")
        return answer.result


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    status: int
    took_s: float
    """With the start of Python."""
    peak_bytes: int | None
    """Most memory of the command and all processes below it, at three looks a second; a page that several share
    counts once. None: nobody looked."""
    stdout: str
    stderr: str


def run_command(*arguments: str, memory: bool = False) -> Ended:
    """Run a command of feedrate and watch it to its end; an interrupt ends it and all that it started."""
    command = [sys.executable, "-P", "-m", "feedrate", *arguments]
    # Its output goes to files: a pipe that nobody reads meanwhile would stop a command that says much.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.perf_counter()
        with subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True) as running:
            try:
                peak = peak_bytes(running) if memory else None
                running.wait()
            finally:
                if running.poll() is None:
                    os.killpg(running.pid, signal.SIGKILL)
        took_s = time.perf_counter() - begun
        texts = [os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace").strip() for file in (out, err)]
        return Ended(running.returncode, took_s, peak, *texts)


def peak_bytes(running: subprocess.Popen[bytes]) -> int:
    """Watch the memory of a process and of all below it until it ends."""
    process, peak = psutil.Process(running.pid), 0
    while running.poll() is None:
        held = 0
        with suppress(psutil.Error):  # each of them may end meanwhile
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    held += each.memory_full_info().pss
        peak = max(peak, held)
        with suppress(subprocess.TimeoutExpired):
            running.wait(_LOOK_S)
    return peak


@dataclass(frozen=True, slots=True)
class BuiltSite:
    """A site, and what building it took."""

    what: str
    """Whose: ``5 measured runs``, ``100 made-up machines, 10,400 trials``."""
    folder: Path
    took_s: float
    peak_bytes: int


def build_site(what: str, results: Path, out: Path) -> BuiltSite:
    """Build a site by the command that people type, and watch it to its end.

    Raises:
        FeedrateError: it was not built.
    """
    ended = run_command("site", "--results", str(results.resolve()), "--out", str(out), memory=True)
    if ended.status:
        raise FeedrateError(f"bench: the site of {what} was not built: {ended.stderr or ended.status}")
    return BuiltSite(what, out / "site", ended.took_s, ended.peak_bytes or 0)
