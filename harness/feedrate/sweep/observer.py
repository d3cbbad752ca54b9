"""Watches one trial from outside and turns its answer into a row.

Counters are read when the child says that its window opens and closes; telemetry in between, ten times a
second; memory, which is costly, once and after the window, while the trial's workers still live. Who else computes on
the GPU is asked before the child is there and when its window closes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from feedrate.machine.probes import gpu, noise
from feedrate.machine.probes.host import HostProbe, TrialCounters, difference
from feedrate.machine.probes.procfs import descendants, memory, workers_uss
from feedrate.schema.axes import Cell
from feedrate.schema.redaction import KIND_MOST, scrub
from feedrate.sweep.launcher import Answer


class Observer:
    """The watch of a trial: hand it to ``Template.run``, then ask for the journal entry."""

    def __init__(
        self,
        host: HostProbe,
        device: gpu.GpuProbe | None,
        origin_ns: int,
        tick: Callable[[dict[str, Any]], None],
        *,
        growth: bool = False,
    ) -> None:
        """Begin to watch."""
        self._host = host
        self._gpu = device
        self._origin_ns = origin_ns
        self._tick = tick
        self._started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._samples: list[dict[str, Any]] = []
        self._before: TrialCounters | None = None
        self._energy_j: float | None = None
        self._computing = device.computing() if device else None
        self._columns: dict[str, Any] = {}
        self._growth = growth
        self._read_ns = 0
        """When the workers' memory had been read at the first batch."""

    def __call__(self, event: str, pid: int, fields: dict[str, Any]) -> None:
        """Take note of an event of the child, or of a tick."""
        if event == "first_batch" and self._growth:
            self._columns["workers_uss_start_bytes"] = workers_uss(pid)
            self._read_ns = time.perf_counter_ns()
        elif event == "window_opens":
            self._before = self._host.counters(pid)
            self._energy_j = self._gpu.energy_j() if self._gpu else None
        elif event == "window_closes" and self._before is not None:
            self._columns |= difference(self._before, self._host.counters(pid))
            self._close_gpu(pid)
        elif event == "result" and "fact" not in fields.get("row", {}):  # a check of a fact has no loop of its own
            self._columns |= memory(pid)
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
        if self._energy_j is not None and (now := self._gpu.energy_j()) is not None:
            self._columns["gpu_energy_j"] = now - self._energy_j
        ours = {pid, *descendants(pid)}
        self._columns["gpu_foreign_processes"] = self._gpu.foreign_processes(self._computing, ours)

    def entry(self, answer: Answer, identity: dict[str, Any], cell: Cell) -> dict[str, Any]:
        """The trial for the journal.

        Args:
            answer: what came of the job.
            identity: run, trial, cell, block, position and so on.
            cell: the axes that apply.

        Returns:
            ``trial`` (a row of ``columns.TRIALS``), ``steps`` (column to values) and ``telemetry`` (rows).
        """
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


def rows(entries: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Turn a journal into the rows of the three tables."""
    tables: dict[str, list[dict[str, Any]]] = {"trials": [], "steps": [], "telemetry": []}
    for entry in entries:
        trial = entry["trial"]
        key = {"run_id": trial["run_id"], "trial_id": trial["trial_id"]}
        tables["trials"].append(trial)
        columns: dict[str, list[int | None]] = entry["steps"]
        names = list(columns)
        for step, values in enumerate(zip(*columns.values(), strict=True)):
            tables["steps"].append({**key, "step": step, **dict(zip(names, values, strict=True))})
        tables["telemetry"] += [{**key, **sample} for sample in entry["telemetry"]]
    return tables
