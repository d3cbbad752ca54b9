"""What the sections of a bench share: how a figure is judged, jobs in forked children, commands that are watched."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from rich.console import Console

from feedrate.analysis.estimate import half_width
from feedrate.schema.axes import AXES, Value, applicable
from feedrate.schema.errors import TrialError
from feedrate.schema.words import plural
from feedrate.store.bench_record import AccountedScript, TunedWorkload, WatchedScript, WitnessedTrial
from feedrate.sweep.launcher import Template, Watch


class Figure(NamedTuple):
    """One figure that feedrate promises of itself: a ``Promise`` that does not know its section yet."""

    what: str
    target: str
    measured: str
    met: bool | None
    """None: it cannot be measured on this machine, and ``measured`` says why."""


def judge_median(what: str, most: float, values: Sequence[float], unit: str, noun: str = "", note: str = "") -> Figure:
    """Hold the median of some values, one a round, below a bound: ``52 ms (48–61, n = 25 loads)``, and the note."""
    digits = 0 if most >= 10 else 2
    median, n = statistics.median(values), plural(len(values), noun) if noun else str(len(values))
    spread = f"{min(values):.{digits}f}–{max(values):.{digits}f}"
    return Figure(what, f"≤ {most:,} {unit}", f"{median:.{digits}f} {unit} ({spread}, n = {n}){note}", median <= most)


def judge_ratio(what: str, most: float, ratios: Sequence[float], counted: str) -> Figure:
    """Hold paired ratios below a limit, by the Student-t interval of the mean of their logs."""
    logs = np.log(ratios)
    middle, half = float(logs.mean()), float(half_width(logs.std(ddof=1), len(logs)))
    lo, hi = np.exp(middle - half), np.exp(middle + half)
    measured = f"{np.exp(middle):.4f} ({lo:.4f}–{hi:.4f}, n = {len(logs)} {counted})"
    return Figure(what, f"95 % interval below {most:g}", measured, bool(hi < most))


def judge_count(what: str, least: float, nouns: str, right: Sequence[bool], note: str = "") -> Figure:
    """Ask a share of some cases to be right: ``46 of 47``, and the note."""
    target = f"in {100 * least:g} % of {nouns}"
    return Figure(what, target, f"{sum(right)} of {len(right)}{note}", sum(right) >= least * len(right))


def judge_errors(what: str, most: float, unit: str, least: float, errors: Sequence[float]) -> Figure:
    """Ask a share of some errors to be within a bound: ``70 of 72 (error: median -0.10, worst +1.20 %)``."""
    note = f" (error: median {np.median(errors):+.2f}, worst {max(errors, key=abs):+.2f} {unit})"
    figure = judge_count(what, least, "cases", [abs(error) <= most for error in errors], note)
    return figure._replace(target=f"within {most:g} {unit}" + ("" if least == 1 else f" {figure.target}"))


def cell(device: str, **axes: Value) -> dict[str, Value]:
    """Make a cell of the axes that apply; what is not named stands at its default."""
    return applicable({axis.name: axis.default for axis in AXES} | axes, device)[0]


@dataclass(frozen=True, slots=True)
class Session:
    """A bench that is under way; its sections add what stands behind their figures to the lists."""

    console: Console
    folder: Path
    """Temporary: packed samples, a sweep's results, its site."""
    results: Path
    """Where runs are read from."""
    device: str
    """cpu or cuda."""
    machine_id: str
    witnessed: list[WitnessedTrial] = field(default_factory=list)
    scripts: list[WatchedScript] = field(default_factory=list)
    accounted: list[AccountedScript] = field(default_factory=list)
    tuned: list[TunedWorkload] = field(default_factory=list)

    def ask(
        self, template: Template, kind: str, cell: Mapping[str, Value], watch: Watch = lambda *_: None, **more: Any
    ) -> dict[str, Any]:
        """Have a forked child do a job and return its result."""
        job = {"kind": kind, "device": self.device, "cell": dict(cell), "data_root": str(self.folder / "data"), **more}
        answer = template.run(json.dumps(job), timeout_s=120, watch=watch)
        if answer.outcome != "ok":
            raise TrialError(f"bench: a trial ended with {answer.outcome}: {answer.kind}: {answer.message}")
        return answer.result


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    took_s: float
    """With the start of Python."""
    peak_bytes: int | None
    """Most memory of the command and all processes below it, at three looks a second; a page that several share
    counts once. None: nobody looked."""
    stdout: str
    stderr: str


def run_command(*words: str, memory: bool = False) -> Ended:
    """Run a command of feedrate as people type it, and watch it to its end."""
    return run_python("-m", "feedrate", *words, memory=memory)


def run_python(*words: str, memory: bool = False, environment: Mapping[str, str] | None = None) -> Ended:
    """Run a Python and watch it to its end; an interrupt ends it and all that it started."""
    command, variables = [sys.executable, "-P", *words], {**os.environ, **(environment or {})}
    # Its output goes to files: a pipe that nobody reads meanwhile would stop a command that says much.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.perf_counter()
        with subprocess.Popen(command, stdout=out, stderr=err, env=variables, start_new_session=True) as running:
            try:
                peak = peak_bytes(running) if memory else None
                running.wait()
            finally:
                if running.poll() is None:
                    os.killpg(running.pid, signal.SIGKILL)
        took_s = time.perf_counter() - begun
        texts = [os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace").strip() for file in (out, err)]
        return Ended(running.returncode, took_s, peak, *texts)


def run_planted(*words: str, environment: Mapping[str, str] | None = None) -> Ended:
    """Run a Python that must end well; else a TrialError has the last line that it printed."""
    ended = run_python("-W", "ignore", *words, environment=environment)
    if ended.status:
        last = (ended.stderr.splitlines() or [""])[-1]
        raise TrialError(f"bench: python {' '.join(words)} ended with status {ended.status}: {last}")
    return ended


def peak_bytes(running: subprocess.Popen[bytes]) -> int:
    """Watch the memory of a process and of all below it until it ends."""
    process, peak = psutil.Process(running.pid), 0
    while running.poll() is None:
        held = 0
        with suppress(psutil.Error):  # each of them may end meanwhile
            for member in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    held += member.memory_full_info().pss
        peak = max(peak, held)
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.3)  # the kernel walks all pages of a process for one look
    return peak
