"""What a loop waited for: every wait is split by what the worker of its batch did meanwhile.

A worker reads, computes, waits for a core or puts samples together while it prepares a batch, this one or an
earlier one; else it sends or takes work. Batches come in order: where a later one lies ready and other workers idle,
their part of the wait is charged to the order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from feedrate.attach.loop import preparing
from feedrate.attach.records import Covered, Loader, Records

KINDS: Mapping[str, str] = {
    "reading": "wait for storage or network",
    "computing": "compute",
    "queued": "wait for a core",
    "collating": "put samples together",
    "sending": "send batches",
    "order": "idle, as batches come in order",
}
"""What workers do while a batch is waited for."""
_PREPARING = ("reading", "computing", "queued", "collating")


class _Work:
    """What one worker did until any moment: ns of each of ``_PREPARING``."""

    def __init__(self, batches: pd.DataFrame) -> None:
        rows = batches.sort_values("begun_ns")
        took, computing, queued, reading = (column for _, column in preparing(rows).items())
        collating = np.minimum(rows["collate_ns"], took)
        other_computing = np.maximum(0, computing - collating)
        asleep = np.maximum(0, collating - computing)  # a collation that waits
        spent = np.array([np.maximum(0, reading - asleep), other_computing, queued, collating], np.float64)
        spent *= took.to_numpy() / np.maximum(1.0, spent.sum(axis=0))
        self.spent = spent
        """Of each, a column a batch."""
        ends = rows[["begun_ns", "ended_ns"]].to_numpy().ravel()
        self._moments = np.maximum.accumulate(ends)
        self._sums = np.repeat(np.cumsum(spent, axis=1), 2, axis=1)
        self._sums[:, ::2] -= spent
        self.busy = Covered(np.column_stack([ends[::2], ends[::2], ends[1::2]]))

    def within(self, begun: Records, ended: Records) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Nanoseconds of each in each stretch."""
        until = [[np.interp(moments, self._moments, sums) for sums in self._sums] for moments in (begun, ended)]
        return np.asarray(np.subtract(until[1], until[0]), np.float64)


def split(loader: Loader, steps: pd.DataFrame) -> dict[str, float]:
    """Split the waits of some steps: shares by name (``KINDS``) that add up to 1; empty where none was of a worker."""
    late = steps[steps["worker"].ge(0) & ~steps["first"] & (steps["came_ns"] > steps["begun_ns"])]
    if late.empty:
        return {}
    works = {worker: _Work(rows) for worker, rows in loader.batches.groupby("worker")}
    later = _first_later(loader.batches)
    sums: Counter[str] = Counter()
    for worker, rows in late.groupby("worker"):
        begun, arrived = (rows[name].to_numpy(np.int64) for name in ("begun_ns", "came_ns"))
        parts = works[worker].within(begun, arrived)
        took = arrived - begun
        ready = np.clip([later.get(key, end) for key, end in zip(_keys(rows), arrived, strict=True)], begun, arrived)
        others = [work.busy.within(ready, arrived) for name, work in works.items() if name != worker]
        idle = (arrived - ready) - np.mean(others, axis=0) if others else np.zeros(len(rows))
        left = 1 - idle / took
        sums["order"] += idle.sum()
        sums["sending"] += ((took - parts.sum(axis=0)) * left).sum()
        sums.update(dict(zip(_PREPARING, (parts * left).sum(axis=1), strict=True)))
    total = sum(sums.values())
    return {name: float(sums[name] / total) for name in KINDS}


def of_preparing(loader: Loader) -> dict[str, float]:
    """Split the preparing of a loader without workers, whose batches another thread takes; empty of none."""
    if not len(loader.batches) or loader.settings.get("num_workers"):
        return {}
    spent = _Work(loader.batches).spent.sum(axis=1)
    return dict(zip(_PREPARING, (spent / max(1.0, float(spent.sum()))).tolist(), strict=True))


def _keys(rows: pd.DataFrame) -> list[tuple[int, int]]:
    return list(zip(rows["iterator"], rows["batch"], strict=True))


def _first_later(batches: pd.DataFrame) -> dict[tuple[int, int], int]:
    """By iterator and batch: when the first of the batches behind it was prepared."""
    rows = batches.sort_values(["iterator", "batch"], ascending=[True, False])
    soonest = rows.groupby("iterator")["ended_ns"].cummin()
    behind = soonest.groupby(rows["iterator"]).shift()
    followed = behind.notna()
    return dict(zip(_keys(rows[followed]), behind[followed].astype(np.int64), strict=True))
