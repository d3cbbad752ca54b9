"""Runs of a script that never ran: what the hook would have written, put together and saved by feedrate itself.

Workers prepare batches one after the other, as many ahead as ``prefetch_factor`` allows; the loop takes them in order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from subprocess import Popen
from typing import Any, cast

import numpy as np

from feedrate.attach import loop, records, report, rows
from feedrate.attach.facts import Outside
from feedrate.attach.profiler import HotLine
from feedrate.attach.records import Process
from feedrate.attach.run import Ended, Watched

MS = 1_000_000
BEGAN = 10**12
"""Of the script, on the monotonic clock."""
PREFETCH = 2
BATCH_SIZE, LAST = 8, 5
"""Samples of a batch, and of the last one of an epoch."""


@dataclass(frozen=True, slots=True)
class Script:
    """What a made-up script is like."""

    name: str = "train.py"
    workers: int = 2
    prepare_ms: float = 30.0
    step_ms: float = 8.0
    steps: int = 120
    """Of each of two epochs."""
    headspace: bool = False
    code: str = "image = Image.open(self.paths[index])"
    """The line that costs most."""
    hour: int = 3
    """When it began."""


def write(results: Path, script: Script = Script()) -> Path:
    """Write a made-up run below ``results`` and return its folder."""
    stored = rows.save(ended(script), results, script.name)
    if stored is None:
        raise ValueError(f"{script}: too short to be measured")
    return stored.folder


def ended(script: Script) -> Ended:
    """What ``feedrate run`` would have seen."""
    processes = list(_processes(script))
    last = max(int(process.records[:, 2].max()) for process in processes)
    took_ns = last - BEGAN
    seen = report.Report("python train.py --secret=1", "ended with status 0", took_ns / 1e9)
    found = report.make(seen, processes, [], Outside(4.0), last)
    line = HotLine("/home/somebody/private/train.py", 42, "Pictures.__getitem__", script.code, 0.8)
    loader = cast("Any", found.loader)
    samples = [
        {"t_ns": moment, "cpu_util_pct": 60.0, "main_cpu_pct": 40.0, "workers_cpu_pct": 80.0, "load_1m": 1.0}
        for moment in range(BEGAN, last, 100 * MS)
    ]
    return Ended(
        watched=Watched(("python", "train.py"), Path(), cast("Popen[bytes]", None), BEGAN, samples),
        report=replace(found, lines={"waiting" if script.workers else "here": (line,)}),
        returncode=0,
        started_at=datetime(2026, 1, 2, script.hour, 4, 5, tzinfo=UTC),
        versions={"python": "3.11.7", "torch": "2.15.0"},
        alone=loop.alone(loader, processes),
        parent_cpu_pct=1.0,
        processes=processes,
    )


def _processes(script: Script) -> Iterator[Process]:
    """The training process, and a worker process each epoch and worker."""
    rng = random.Random(f"{script}")
    own: list[tuple[int, ...]] = []
    lines: list[dict[str, Any]] = []
    workers: dict[int, list[tuple[int, ...]]] = {}
    now = BEGAN + 500 * MS
    for epoch in range(2):
        pids = [100 * (epoch + 1) + worker for worker in range(script.workers)]
        lines.append(_said(script, epoch, pids, now))
        batches, own_steps, now = _epoch(script, epoch, now, rng)
        own += own_steps
        for batch in batches:
            (workers.setdefault(pids[batch[3]], []) if script.workers else own).append(batch)
    if script.headspace:
        step = int(script.step_ms * MS)
        own += [(records.REUSED, now + at * step, now + at * step, 1, at + 1) for at in range(40)]
        now += 40 * step
        each = int(script.prepare_ms * MS / max(1, script.workers))
        own += [(records.DRAINED, now + at * each, now + (at + 1) * each, 1) for at in range(40)]
    yield Process(1, BEGAN, _table(own), tuple(lines))
    for pid, batches in workers.items():
        begun = lines[pid // 100 - 1]["begun_ns"]
        yield Process(pid, begun + MS, _table(batches), ())


def _table(rows_: list[tuple[int, ...]]) -> records.Records:
    return np.array([(*row, *(0,) * (12 - len(row))) for row in sorted(rows_, key=lambda row: row[1])], np.int64)


def _said(script: Script, epoch: int, pids: list[int], now: int) -> dict[str, Any]:
    """What the hook says of an iterator."""
    threads = {"prefetch_factor": PREFETCH, "start_method": "fork"} if script.workers else {}
    made = [["/home/somebody/private/train.py", 80, "main"]]
    of_loader = {"batch_size": BATCH_SIZE, "num_workers": script.workers, "pin_memory": False, **threads}
    where = {"made": made, "used": made, "persistent_workers": False, "dataset": "Pictures"}
    return (
        {"what": "iterator", "t_ns": now, "iterator": epoch, "rank": 0, "ranks": 1, "begun_ns": now, "workers": pids}
        | where
        | of_loader
    )


Epoch = tuple[list[tuple[int, ...]], list[tuple[int, ...]], int]


def _epoch(script: Script, epoch: int, now: int, rng: random.Random) -> Epoch:
    """Batches as they are prepared, what the loop does with each, and when it ends."""
    batches, own, taken, made = [], [], list[int](), now
    free = [now + 30 * MS] * max(1, script.workers)
    asked = now
    for batch in range(script.steps):
        place = batch % len(free)
        ahead = batch - PREFETCH * script.workers
        begin = max(free[place], taken[ahead] if ahead >= 0 else now) if script.workers else asked
        prepare = int(script.prepare_ms * MS * rng.lognormvariate(0, 0.1))
        free[place] = end = begin + prepare
        count = LAST if batch == script.steps - 1 else BATCH_SIZE
        worker = place if script.workers else -1
        batches.append((records.BATCH, begin, end, worker, batch, count, prepare // 10, prepare // 2, 0, epoch))
        lying = sum(asked >= done for done in free) if script.workers else -1
        got, step = max(asked, end) + MS // 5, int(script.step_ms * MS * rng.lognormvariate(0, 0.05))
        waited = max(0, end - asked) if script.workers and batch else 0
        updates = 4 * (script.steps * epoch + batch)  # twice a backward pass and a step of the optimizer
        own.append((records.NEXT, asked, got, epoch, batch, lying, asked, asked + MS // 10, updates, made, 0, waited))
        own.append((records.BACKWARD, got + step * 3 // 10, got + step * 7 // 10))
        own.append((records.OPTIMIZER, got + step * 7 // 10, got + step * 9 // 10))
        asked, made = got + step, 0
        taken.append(got)
    own.append((records.END, asked, asked + MS, epoch, 0, 0, 2 * script.steps * (epoch + 1)))
    return batches, own, asked + MS
