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
from feedrate.attach.report import below, row_lines, usage, usage_line
from feedrate.machine.probes import procfs
from feedrate.machine.probes.gpu import GpuProbe
from feedrate.machine.probes.host import HostProbe
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.words import percent, plural

EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Seen:
    """What half a minute showed."""

    pid: int
    """Of the process that takes batches: the one that was asked for, or one that it has started."""
    above: int
    """The one that was asked for."""
    alike: int
    """Processes that take batches, as ranks do."""
    seconds: float
    samples: int
    rows: Mapping[str, float]
    """Of the samples of the threads that take batches or train, those in which they were within a row (``ROWS``)."""
    workers: int
    """Processes that prepared batches, at most at one time."""
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
        began = time.monotonic()
        watched = list(_watch(pid, seconds))
        took = time.monotonic() - began
        stacks = spy.close()
    if spy.problems and not stacks:
        other = f"process {pid} is another user's: sudo feedrate top {pid}; " if os.geteuid() not in (0, owner) else ""
        raise EnvironmentFault(f"top: {other}{spy.problems[0]}")
    waiting = Counter[int]()
    for stack in stacks:
        of_worker = any("_worker_loop" in frame.name for frame in stack.frames)
        if profiler.waits(stack) and not of_worker:
            waiting[stack.process or pid] += stack.count
    # A launcher, such as torchrun, takes no batches: those do that it has started.
    trains = pid if pid in waiting or not waiting else waiting.most_common(1)[0][0]
    of_process = [stack for stack in stacks if (stack.process or pid) == trains]
    theirs = [stack for stack in stacks if (stack.process or pid) not in waiting and profiler.prepares(stack)]
    preparing = {stack.process for stack in theirs}
    of_workers = [stack for stack in stacks if stack.process in preparing]
    used = usage([sample for sample, _ in watched])
    return Seen(
        pid=trains,
        above=pid,
        alike=len(waiting),
        seconds=took,
        samples=sum(stack.count for stack in of_process),
        rows=_shares(of_process),
        workers=max((len(preparing.intersection(alive)) for _, alive in watched), default=0),
        preparing_share=profiler.share(of_workers, profiler.prepares),
        lines=_lines(of_process, theirs),
        machine=used if trains == pid else below(used),
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
    """The hottest lines by row; ``theirs`` are those in which workers prepare."""
    by_row: dict[str, list[Stack]] = {"waiting": list(theirs)}
    for stack in chosen:
        if stack.main and (row := _row(stack)) != "waiting":
            by_row.setdefault(row, []).append(stack)
    return {row: profiler.hottest([blame.below(stack, row) for stack in stacks]) for row, stacks in by_row.items()}


def _watch(pid: int, seconds: float) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """What the probes see, and which processes live, now and then until the process ends."""
    device, until = GpuProbe.open(), time.monotonic() + seconds
    with HostProbe() as host, closing(device) if device else nullcontext():
        while time.monotonic() < until and psutil.pid_exists(pid):
            yield host.sample(pid) | (device.sample() if device else {}), procfs.descendants(pid)
            time.sleep(EVERY_S)


def text(seen: Seen) -> Iterator[tuple[str, str]]:
    """Say it in lines: what each is about, and the line."""
    where = f", below {seen.above}" if seen.pid != seen.above else ""
    where += f"; {seen.alike} processes take batches" if seen.alike > 1 else ""
    yield "", f"process {seen.pid}{where}, {seen.seconds:.0f} s, {plural(seen.samples, 'sample')}"
    if seen.rows:
        yield from (("time", line) for line in row_lines(seen.rows, seen.lines))
    else:
        yield "data", "no DataLoader was at work"
    if seen.workers:
        of_all = " of all of them" if seen.alike > 1 else ""
        preparing = f"preparing batches {percent(seen.preparing_share)} of the time"
        yield "workers", f"{plural(seen.workers, 'worker')}{of_all}, {preparing}"
    yield "machine", usage_line(seen.machine)
    if seen.rows:
        yield "note", "which loops evaluate, and what lies between epochs, only feedrate run tells"
