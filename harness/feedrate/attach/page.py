"""A script's report as one page of HTML, which needs no network.

It has the account as a bar, the lines of each row as a flame graph, and the time line of the training process and its
workers around a typical and around a slow step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from feedrate.attach import loop, report
from feedrate.attach.account import ROWS
from feedrate.attach.blame import Blame
from feedrate.attach.profiler import Stack, of_library
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
    Loader,
    Process,
)
from feedrate.attach.report import Report

_TEMPLATE = Path(__file__).with_name("page.html")
_AROUND = 4
"""Steps before and behind the one that is shown."""
_SHOWN = {
    MADE: ("start iterator", "loop", "wait"),
    NEXT: ("wait for batch", "loop", "wait"),
    END: ("end of pass", "loop", "wait"),
    COPIED: ("copy to device", "step", "step"),
    BACKWARD: ("backward", "step", "step"),
    OPTIMIZER: ("optimizer", "step", "step"),
    SAVED: ("save checkpoint", "step", "step"),
    COLLECTED: ("garbage collection", "step", "step"),
    STARVED: ("device has nothing to do", "device", "other"),
    BATCH: ("prepare batch", "batches", "other"),
    TAKEN: ("wait for work", "batches", "once"),
}
"""By kind of record: words, the track of its process, and what colours it (as kinds of rows)."""
_SLOW = 0.99
"""Share of the steps that the slow one takes longer than."""


def write(seen: Report, processes: Sequence[Process], stacks: Sequence[Stack], path: Path) -> None:
    """Write the page; an OSError where that cannot be."""
    data = json.dumps(_data(seen, processes, stacks), allow_nan=False).replace("<", "\\u003c")
    path.write_text(_TEMPLATE.read_text(encoding="utf-8").replace("DATA", data, 1), encoding="utf-8")


def _data(seen: Report, processes: Sequence[Process], stacks: Sequence[Stack]) -> dict[str, Any]:
    lines = list(report.text(seen))
    by_about = dict(lines)
    process = next((one for one in processes if seen.loader and one.pid == seen.loader.pid and len(one.records)), None)
    flames: Mapping[str, Sequence[Stack]] = {}
    if process and seen.account:
        flames = Blame(process, seen.account).by_row(stacks)
    return {
        "command": seen.command,
        "ended": f"{seen.status} after {seen.took_s:.0f} s",
        "answer": "Held back by " + by_about["held back by"] if "held back by" in by_about else by_about.get("loader"),
        "seconds": seen.account.wall_ns / 1e9 if seen.account else 0,
        "rows": list(_rows(seen, flames)),
        "around": list(_around(seen.loader, processes)) if seen.loader and seen.pacing else [],
        "said": [(about, line) for about, line in lines if about and about != "time"],
    }


def _rows(seen: Report, flames: Mapping[str, Sequence[Stack]]) -> Iterator[dict[str, Any]]:
    rows = seen.account.rows if seen.account else {}
    for name in sorted(rows, key=lambda name: -rows[name]):
        lines = seen.lines.get(name, ())
        yield {
            "words": ROWS[name].words,
            "kind": ROWS[name].kind,
            "seconds": rows[name] / 1e9,
            "line": {"share": line.share, "code": line.code, "place": f"{report.short(line.file)}:{line.line}"}
            if (line := next(iter(lines), None))
            else None,
            "flame": _flame(flames[name]) if name in flames else None,
        }


def _flame(stacks: Sequence[Stack]) -> dict[str, Any]:
    """Merge stacks from their outermost frames on."""
    root: dict[str, Any] = {"name": "all", "own": False, "count": 0, "parts": {}}
    for stack in stacks:
        box = root
        box["count"] += stack.count
        for frame in stack.frames:
            name = f"{frame.name} ({report.short(frame.file)}:{frame.line})"
            new = {"name": name, "own": not of_library(frame.file), "count": 0, "parts": {}}
            box = box["parts"].setdefault(name, new)
            box["count"] += stack.count

    def listed(box: dict[str, Any]) -> dict[str, Any]:
        parts = sorted(box["parts"].values(), key=lambda child: -child["count"])
        return box | {"parts": [listed(child) for child in parts]}

    return listed(root)


def _around(loader: Loader, processes: Sequence[Process]) -> Iterator[dict[str, Any]]:
    """What every process did around a typical and around a slow step."""
    steps = loop.whole_steps(loader).reset_index(drop=True)
    walls = steps["wall_ns"].to_numpy(np.float64)
    zero = min((int(one.records[:, 1].min()) for one in processes if len(one.records)), default=0)
    for name, of in (("A typical step", 0.5), ("A slow step", _SLOW)):
        middle = int(np.abs(walls - np.quantile(walls, of)).argmin())
        stretch = steps.iloc[max(0, middle - _AROUND) : middle + _AROUND + 1]
        begun, ended = int(stretch["begun_ns"].min()), int(stretch["ended_ns"].max())
        lanes = _lanes(processes, begun, ended, zero)
        yield {
            "name": name,
            "from": (begun - zero) / 1e6,
            "to": (ended - zero) / 1e6,
            "lanes": [{"name": worker or track, "events": lanes[worker, track]} for worker, track in sorted(lanes)],
        }


def _lanes(
    processes: Sequence[Process], begun: int, ended: int, zero: int
) -> dict[tuple[str, str], list[tuple[str, str, float, float]]]:
    """Words, colour, begin and length in ms of what lies in a stretch, by worker (empty: none) and track."""
    lanes: dict[tuple[str, str], list[tuple[str, str, float, float]]] = {}
    for process in processes:
        numbers = [number for number in process.of(BATCH)[:, 3] if number >= 0]
        worker, records = f"worker {min(numbers)}" if numbers else "", process.records
        for kind, at, until in records[(records[:, 1] < ended) & (records[:, 2] > begun), :3].tolist():
            if kind in _SHOWN and until >= at:
                words, track, color = _SHOWN[kind]
                lanes.setdefault((worker, track), []).append((words, color, (at - zero) / 1e6, (until - at) / 1e6))
    return lanes
