"""The time line of a script is a file that Perfetto opens: every event has a process, a track, a begin and a length."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from feedrate.attach import trace
from feedrate.attach.records import BACKWARD, BATCH, NEXT, Process


def process(pid: int, *rows: tuple[int, ...]) -> Process:
    """A process with some records."""
    return Process(pid, 1, np.array([(*row, *(0,) * (12 - len(row))) for row in rows], np.int64).reshape(-1, 12), ())


def test_a_trace_holds_waits_phases_and_workers(tmp_path: Path) -> None:
    """Microseconds since the first record; workers by their number; without records there is no event."""
    main = process(7, (NEXT, 5_000, 9_000, 0, 3, 2), (BACKWARD, 10_000, 12_000))
    worker = process(8, (BATCH, 1_000, 4_000, 1, 3, 16))
    trace.write([main, worker, process(9)], tmp_path / "t.json")
    written = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in written if event["ph"] == "M"}
    assert names == {7: "training process", 8: "worker 1", 9: "training process"}
    shown = [(event["name"], event["tid"], event["ts"], event["dur"]) for event in written if event["ph"] == "X"]
    assert shown == [
        ("wait for batch", "loop", 4.0, 4.0),
        ("backward", "step", 9.0, 2.0),
        ("prepare batch", "batches", 0.0, 3.0),
    ]
    assert written[1]["args"] == {"iterator": 0, "batch": 3, "batches ready": 2}
