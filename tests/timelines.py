"""Training loops whose records are made up, so that what they say is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feedrate.attach import records
from feedrate.attach.records import BATCH, END, NEXT, Loader, Process

MS = 1_000_000
Times = npt.NDArray[np.int64]


def process_of(waits: Times, steps: Times, *, batches: list[tuple[int, ...]] | None = None, **settings: Any) -> Process:
    """A process whose loop waits and steps for so many ns, one after the other; ``settings`` are of its loader.

    ``batches``: how long before a step's batch came it was prepared, took, computed, was queued and collated.
    """
    came = np.cumsum(waits) + np.append(0, np.cumsum(steps)[:-1])
    asked = came - waits
    late = waits if not batches or batches[0][0] < waits[0] else 0 * waits  # a batch that lies ready is received
    ends = zip(asked, came, late, strict=True)
    rows = [[NEXT, begun, ended, 0, place, -1, 1, 1, 0, 0, 0, wait] for place, (begun, ended, wait) in enumerate(ends)]
    rows[0][9] = 1  # the clock begins with the making of the iterator, at 1
    rows.append([END, came[-1] + steps[-1], came[-1] + steps[-1], 0, *[0] * 8])
    workers = settings.get("num_workers", 0)
    for place, (before, took, cpu, queued, collate) in enumerate(batches or []):
        ended = came[place] - before
        rows.append([BATCH, ended - took, ended, place % max(1, workers), place, 8, collate, cpu, queued, 0, cpu, 0])
    known = {"prefetch_factor": 2 if workers else None, "rank": 0, "made": [], "begun_ns": 0, "workers": []}
    said = {"what": "iterator", "iterator": 0, "num_workers": workers, "batch_size": 8, "t_ns": 1, **known, **settings}
    array = np.array(rows, np.int64)
    array[:, 1:3] += 1
    return Process(1, 0, array, (said,))


def loader_of(waits: Times, steps: Times, **what: Any) -> Loader:
    """The loader of such a loop."""
    (loader,) = records.loaders([process_of(waits, steps, **what)])
    return loader


def constant(count: int, value: int) -> Times:
    return np.full(count, value, np.int64)
