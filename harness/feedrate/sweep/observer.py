"""The watch of a trial: what the probes see of it from outside, and whether its page cache was what its cell says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from feedrate.machine import limits
from feedrate.machine.probes import gpu, noise
from feedrate.machine.probes.host import HostProbe, TrialCounters, difference
from feedrate.machine.probes.procfs import descendants, footprints, memory, workers_uss
from feedrate.schema import window
from feedrate.schema.axes import Cell
from feedrate.schema.redaction import KIND_MOST, scrub
from feedrate.sweep.launcher import STILL_S, Answer


class Observer:
    """Watches one trial from outside and turns its answer into a row: hand it to ``Template.run``, ask for the entry.

    Counters are read when the child says that its window opens and closes; telemetry in between, ten times a second;
    memory, which is costly, once and after the window, while the trial's workers still live. Who else computes on the
    GPU is asked before the child is there and when its window closes.
    """

    def __init__(
        self,
        host: HostProbe,
        device: gpu.GpuProbe | None,
        origin_ns: int,
        tick: Callable[[dict[str, Any]], None],
        started: datetime,
        *,
        growth: bool = False,
    ) -> None:
        self._host = host
        self._gpu = device
        self._origin_ns = origin_ns
        self._tick = tick
        self._started_at = started.isoformat(timespec="milliseconds")
        self._samples: list[dict[str, Any]] = []
        self._before: TrialCounters | None = None
        self._energy: tuple[float | None, int] = None, 0
        """What the GPU had used when the window opened, in joules, and when that was read."""
        self._computing = device.computing() if device else None
        self._columns: dict[str, Any] = {}
        self._growth = growth
        self._memory_used = 0.0
        self.group: limits.Group | None = None
        """The group that limits the trial's memory."""
        self._read_ns = 0
        """When the workers' memory had been read at the first batch."""
        self.still_s = 0.0
        """How long this process stood still, by a clock that goes on while the machine sleeps."""
        self.idle_s = 0.0
        """The same by the clock that times everything, which sleeps with the machine."""
        self._seen = _clocks()

    def __call__(self, event: str, pid: int, fields: dict[str, Any]) -> None:
        """Take note of an event of the child, or of a tick."""
        gap_s, idle_s = (now - before for now, before in zip(_clocks(), self._seen, strict=True))
        if gap_s > STILL_S:
            self.still_s, self.idle_s = self.still_s + gap_s, self.idle_s + idle_s
        self._note(event, pid, fields)
        self._seen = _clocks()  # a look at the memory of many processes takes long

    def _note(self, event: str, pid: int, fields: dict[str, Any]) -> None:
        if event == "first_batch" and self._growth:
            self._columns["workers_uss_start_bytes"] = workers_uss(pid)
            self._read_ns = time.perf_counter_ns()
        elif event == "window_opens":
            self._memory_used = self.group.used() if self.group else 0.0
            self._before = self._host.counters(pid)
            if self._gpu:
                self._energy = self._gpu.energy_j(), time.perf_counter_ns()
        elif event == "window_closes" and self._before is not None:
            self._columns |= difference(self._before, self._host.counters(pid))
            self._close_gpu(pid)
        elif event == "result" and "fact" not in fields.get("row", {}):  # a check of a fact has no loop of its own
            self._columns |= memory(footprints(pid))
            if self._growth:
                self._columns["workers_uss_end_bytes"] = workers_uss(pid)
        elif event == "tick":
            sample = {"t_ns": time.perf_counter_ns(), **self._host.sample(pid)}
            if self._gpu:
                sample |= self._gpu.sample()
            self._samples.append(sample)
            self._tick(sample)

    def _close_gpu(self, pid: int) -> None:
        if not self._gpu:
            return
        before_j, read_ns = self._energy
        if before_j is not None and (now_j := self._gpu.energy_j()) is not None:
            self._columns |= {"gpu_energy_j": now_j - before_j, "gpu_energy_ns": time.perf_counter_ns() - read_ns}
        ours = {pid, *descendants(pid)}
        self._columns["gpu_foreign_processes"] = self._gpu.foreign_processes(self._computing, ours)

    def entry(self, answer: Answer, identity: dict[str, Any], cell: Cell) -> dict[str, Any]:
        """The trial for the journal: its row, ``steps`` (column to values) and ``telemetry`` (rows)."""
        answer = require_page_cache(answer, self._columns.get("read_bytes"), self._memory_used, cell)
        started, ended = answer.result.get("started_ns", 0), answer.result.get("ended_ns", 0)
        if started < self._read_ns:  # the warm-up was over before the memory was read: no number from inside a window
            self._columns["workers_uss_start_bytes"] = None
        if self._gpu and started:
            self._columns |= gpu.window(self._samples, started, ended)
        row = {
            **identity,
            **cell,
            "started_at": self._started_at,
            "outcome": answer.outcome,
            "error_kind": scrub(answer.kind, KIND_MOST) if answer.kind else None,
            "error_message": scrub(answer.message) if answer.message else None,
            **answer.result.get("row", {}),
            **self._columns,
            "trial_wall_ns": answer.over_ns - answer.ordered_ns,
            "left_processes": answer.left_processes,
            "left_shm_segments": answer.left_shm_segments,
        }
        if answer.first_batch_ns is not None:
            row["first_batch_ns"] = answer.first_batch_ns - answer.ordered_ns
        row["flags"] = noise.flags(row)
        telemetry = [
            {**sample, "t_ns": sample["t_ns"] - self._origin_ns, "in_window": started <= sample["t_ns"] <= ended}
            for sample in self._samples
        ]
        return {"trial": row, "steps": answer.result.get("steps", {}), "telemetry": telemetry}


def _clocks() -> tuple[float, float]:
    return time.clock_gettime(time.CLOCK_BOOTTIME), time.perf_counter()


def require_page_cache(answer: Answer, read_bytes: int | None, memory_used: float, cell: Cell) -> Answer:
    """Make a trial one that failed whose page cache was not cold, or not full, although its cell says so.

    What its processes caused to be read in its window tells, None where that cannot be observed, and the share of its
    memory limit that was used when its window opened.
    """
    state = cell.get("page_cache")
    if answer.outcome != "ok" or state not in ("cold", "full"):
        return answer
    problem: str | None
    if read_bytes is None:
        problem = "what a process reads from storage cannot be observed here (/proc/PID/io): leave it out"
    elif state == "cold":
        problem = _not_cold(answer.result["row"], read_bytes, cell)
    else:
        problem = _not_full(answer.result["row"], read_bytes, memory_used)
    if not problem:
        return answer
    kind, message = f"Not{state.capitalize()}", f"page_cache {state}: {problem}"
    return replace(answer, outcome="error", result={}, kind=kind, message=message)


def _not_cold(row: dict[str, Any], read_bytes: int, cell: Cell) -> str | None:
    """Why a window was not cold: too few bytes were read in it, or what was not read lies in memory."""
    count, batch, workers, ahead = (
        int(cell.get(axis, 0)) for axis in ("n_samples", "batch_size", "num_workers", "prefetch_factor")
    )
    needed = window.needed_bytes(row["stored_bytes"], row["samples"], count)
    if read_bytes < window.READ_LEAST * needed:
        return (
            f"{read_bytes:,} bytes were read from storage in the window, whose samples take {needed:,.0f} bytes there; "
            f"expected {window.READ_LEAST:.0%} of that or more. The rest had been read ahead: raise n_samples, or "
            "lower read_ahead_kib"
        )
    if cell["access"] != "random" or cell.get("memory_limit_mib"):
        return None
    consumed = window.consumed_samples(row["warmup_steps"] + row["steps"], batch, workers, ahead)
    unread = window.unread_in_memory(row["cached_after_pct"], consumed, count)
    if unread <= window.UNREAD_MOST:
        return None
    return (
        f"{read_bytes / needed:.2f} times the bytes of its samples were read from storage in the window, but "
        f"{unread:.0%} of the {count - consumed:,} samples that were not read lies in memory; expected "
        f"{window.UNREAD_MOST:.0%} at most. It was read with other samples: raise n_samples, or lower read_ahead_kib"
    )


def _not_full(row: dict[str, Any], read_bytes: int, memory_used: float) -> str | None:
    """Why memory was not full: there was room when the window opened, or nothing had to be read in it."""
    if memory_used < window.FULL:
        return (
            f"{memory_used:.0%} of memory_limit_mib was used when the window opened; expected {window.FULL:.0%} or "
            "more: raise n_samples, or lower memory_limit_mib"
        )
    if not read_bytes or row["cached_after_pct"] >= 100:
        return "nothing was read from storage in the window: raise n_samples, or lower memory_limit_mib"
    return None
