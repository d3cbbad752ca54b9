"""``feedrate top PID``: what holds back a training that already runs, without having started it.

py-spy samples its process tree for half a minute: the share of the training process' samples in which it waits for a
loader is the share of time that it waits, and the workers' lines are what they do meanwhile.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from feedrate.attach import profiler
from feedrate.attach.profiler import HotLine, Profiler
from feedrate.attach.report import usage, usage_line
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
    wait_share: float
    """Of the samples of its training threads, those in which they waited for a loader."""
    workers: int
    """Processes below it that prepared batches."""
    preparing_share: float
    """Of their samples, those in which they did."""
    lines: tuple[HotLine, ...]
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
        message = f"feedrate top: no process {pid}; expected the id of a training that runs: pgrep -af python"
        raise InputError(message) from error
    with tempfile.TemporaryDirectory(prefix="feedrate-top-") as name:
        spy = Profiler(Path(name))
        spy.watch(pid)
        samples = list(_watch(pid, seconds))
        stacks = spy.close()
    if spy.problems and not stacks:
        other = f"process {pid} is another user's: sudo feedrate top {pid}; " if os.geteuid() not in (0, owner) else ""
        raise EnvironmentFault(f"feedrate top: {other}{spy.problems[0]}")
    own = [stack for stack in stacks if stack.process in (None, pid)]
    theirs = [stack for stack in stacks if stack.process not in (None, pid)]
    return Seen(
        pid=pid,
        seconds=seconds,
        samples=sum(stack.count for stack in own),
        wait_share=profiler.share(own, profiler.waits),
        workers=len({stack.process for stack in theirs if profiler.prepares(stack)}),
        preparing_share=profiler.share(theirs, profiler.prepares),
        lines=tuple(profiler.hottest(profiler.preparing(stacks))),
        machine=usage(samples),
    )


def _watch(pid: int, seconds: float) -> Iterator[dict[str, Any]]:
    device, until = GpuProbe.open(), time.monotonic() + seconds
    with HostProbe() as host, closing(device) if device else nullcontext():
        while time.monotonic() < until and psutil.pid_exists(pid):
            yield host.sample(pid) | (device.sample() if device else {})
            time.sleep(EVERY_S)


def text(seen: Seen) -> Iterator[tuple[str, str]]:
    """Say it in lines: what each is about, and the line."""
    yield "", f"process {seen.pid}, {seen.seconds:.0f} s, {plural(seen.samples, 'sample')}"
    if seen.wait_share or seen.lines:
        yield "data", f"waits for data {percent(seen.wait_share)} of the time"
    else:
        yield "data", "no DataLoader was at work"
    if seen.workers:
        yield (
            "workers",
            f"{plural(seen.workers, 'worker')}, preparing batches {percent(seen.preparing_share)} of the time",
        )
    for line in seen.lines:
        yield "line", f"{percent(line.share)} of preparing  {line.file}:{line.line}  {line.code}"
    yield "machine", usage_line(seen.machine)
