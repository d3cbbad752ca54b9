"""The time line of a script in Chrome's trace format, which ui.perfetto.dev and chrome://tracing open.

The training process has a track of its loop, of what its steps do, and of what comes between; each worker has one of
its batches. Times are microseconds since the first record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.attach.records import (
    BACKWARD,
    BATCH,
    COLLECTED,
    COPIED,
    END,
    MADE,
    NEXT,
    OPTIMIZER,
    SAVED,
    STARVED,
    TAKEN,
    Process,
)


class _Kind(NamedTuple):
    """How records of a kind are shown."""

    name: str
    track: str
    fields: Mapping[str, int]
    """Columns that are shown beside, by name."""


_KINDS: Mapping[int, _Kind] = {
    MADE: _Kind("start iterator", "loop", {"iterator": 3}),
    NEXT: _Kind("wait for batch", "loop", {"iterator": 3, "batch": 4, "batches ready": 5}),
    END: _Kind("end of pass", "loop", {"iterator": 3}),
    COPIED: _Kind("copy to device", "step", {"bytes": 3}),
    BACKWARD: _Kind("backward", "step", {}),
    OPTIMIZER: _Kind("optimizer", "step", {}),
    SAVED: _Kind("save checkpoint", "step", {}),
    COLLECTED: _Kind("garbage collection", "step", {}),
    STARVED: _Kind("device has nothing to do", "device", {}),
    BATCH: _Kind("prepare batch", "batches", {"worker": 3, "batch": 4, "samples": 5}),
    TAKEN: _Kind("wait for work", "batches", {"worker": 3, "batch": 4}),
}


def events(processes: Sequence[Process]) -> Iterator[dict[str, Any]]:
    """Give the trace's events: complete ones, and the names of processes and tracks."""
    first = first_ns(processes)
    for process in processes:
        yield from _named(process)
        for row in process.records.tolist():
            kind = _KINDS.get(row[0])
            if kind is not None and row[2] >= row[1]:
                yield {
                    "ph": "X",
                    "pid": process.pid,
                    "tid": kind.track,
                    "name": kind.name,
                    "ts": (row[1] - first) / 1e3,
                    "dur": (row[2] - row[1]) / 1e3,
                    "args": {name: row[column] for name, column in kind.fields.items()},
                }


def first_ns(processes: Sequence[Process]) -> int:
    """When the first record of some processes began, which is the trace's zero; 0 without records."""
    return min((int(one.records[:, 1].min()) for one in processes if len(one.records)), default=0)


def _named(process: Process) -> Iterator[dict[str, Any]]:
    """The name of a process: that of a worker has its number."""
    workers = {int(row[3]) for row in process.of(BATCH) if row[3] >= 0}
    name = f"worker {min(workers)}" if workers else "training process"
    yield {"ph": "M", "pid": process.pid, "name": "process_name", "args": {"name": name}}


def write(processes: Iterable[Process], path: Path) -> None:
    """Write the trace of some processes; an OSError where that cannot be."""
    path.write_text(json.dumps({"traceEvents": list(events(list(processes))), "displayTimeUnit": "ms"}), "utf-8")
