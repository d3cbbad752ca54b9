"""``feedrate top PID``: what holds back a training that already runs, without having started it.

py-spy samples its process tree for half a minute: the share of the main thread's samples in which it is within a row of
the account is the share of time that this takes. Which passes evaluate, and where an epoch begins, only a start under
``feedrate run`` tells: that is part of the step here.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from feedrate.attach import blame, profiler
from feedrate.attach.profiler import HotLine, Profiler, Stack
from feedrate.attach.report import row_lines, usage, usage_line
from feedrate.machine.probes.gpu import GpuProbe
from feedrate.machine.probes.host import HostProbe
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.words import percent, plural

EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Seen:
    """What half a minute showed."""

    pid: int
    seconds: float
    samples: int
    rows: Mapping[str, float]
    """Of the samples of the threads that take batches or train, those in which they were within a row (``ROWS``)."""
    workers: int
    """Processes below it that prepared batches."""
    preparing_share: float
    """Of their samples, those in which they did."""
    lines: Mapping[str, Sequence[HotLine]]
    """The hottest lines of each row; of ``waiting`` those that workers ran."""
    machine: Mapping[str, float]
    """Means of what the probes saw."""


def look(pid: int, seconds: float = 30.0) -> Seen:
    """Sample a process and its descendants.

    Raises:
        InputError: there is no such process.
        EnvironmentFault: py-spy is missing, or may not read it.
    """
    try:
        owner = psutil.Process(pid).uids().effective
    except psutil.NoSuchProcess as error:
        message = f"top: no process {pid}; expected the id of a training that runs: pgrep -af python"
        raise InputError(message) from error
    with tempfile.TemporaryDirectory(prefix="feedrate-top-") as name:
        spy = Profiler(Path(name))
        spy.watch(pid)
        samples = list(_watch(pid, seconds))
        stacks = spy.close()
    if spy.problems and not stacks:
        other = f"process {pid} is another user's: sudo feedrate top {pid}; " if os.geteuid() not in (0, owner) else ""
        raise EnvironmentFault(f"top: {other}{spy.problems[0]}")
    of_process = [stack for stack in stacks if stack.process in (None, pid)]
    theirs = [stack for stack in stacks if stack.process not in (None, pid)]
    return Seen(
        pid=pid,
        seconds=seconds,
        samples=sum(stack.count for stack in of_process),
        rows=_shares(of_process),
        workers=len({stack.process for stack in theirs if profiler.prepares(stack)}),
        preparing_share=profiler.share(theirs, profiler.prepares),
        lines=_lines(of_process, theirs),
        machine=usage(samples),
    )


def _shares(stacks: Sequence[Stack]) -> dict[str, float]:
    """Share of the samples of the main thread, or of that which takes batches, by row; none without a loader."""
    loads = {stack.thread for stack in stacks if profiler.waits(stack)}
    chosen = [stack for stack in stacks if (stack.thread in loads if loads else stack.main)]
    counts = Counter[str]()
    for stack in chosen:
        counts[_row(stack)] += stack.count
    return {row: count / counts.total() for row, count in counts.most_common()} if loads else {}


def _row(stack: Stack) -> str:
    row = blame.stamped(stack.frames)
    return "step" if row is None else row or "waiting"


def _lines(chosen: Sequence[Stack], theirs: Sequence[Stack]) -> dict[str, Sequence[HotLine]]:
    """The hottest lines by row."""
    by_row: dict[str, list[Stack]] = {"waiting": [stack for stack in theirs if profiler.prepares(stack)]}
    for stack in chosen:
        if stack.main and (row := _row(stack)) != "waiting":
            by_row.setdefault(row, []).append(stack)
    return {row: profiler.hottest([blame.below(stack, row) for stack in stacks]) for row, stacks in by_row.items()}


def _watch(pid: int, seconds: float) -> Iterator[dict[str, Any]]:
    device, until = GpuProbe.open(), time.monotonic() + seconds
    with HostProbe() as host, closing(device) if device else nullcontext():
        while time.monotonic() < until and psutil.pid_exists(pid):
            yield host.sample(pid) | (device.sample() if device else {})
            time.sleep(EVERY_S)


def text(seen: Seen) -> Iterator[tuple[str, str]]:
    """Say it in lines: what each is about, and the line."""
    yield "", f"process {seen.pid}, {seen.seconds:.0f} s, {plural(seen.samples, 'sample')}"
    if seen.rows:
        yield from (("time", line) for line in row_lines(seen.rows, seen.lines))
    else:
        yield "data", "no DataLoader was at work"
    if seen.workers:
        yield (
            "workers",
            f"{plural(seen.workers, 'worker')}, preparing batches {percent(seen.preparing_share)} of the time",
        )
    yield "machine", usage_line(seen.machine)
    if seen.rows:
        yield "note", "which loops evaluate, and what lies between epochs, only feedrate run tells"
