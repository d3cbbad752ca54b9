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

from feedrate.attach import loop, report, trace
from feedrate.attach.account import ROWS
from feedrate.attach.blame import Blame
from feedrate.attach.profiler import Stack, of_library
from feedrate.attach.records import Loader, Process
from feedrate.attach.report import Report

_TEMPLATE = Path(__file__).with_name("page.html")
_AROUND = 4
"""Steps before and behind the one that is shown."""
_TRACKS = {"loop": "wait", "step": "step", "device": "other", "batches": "other"}
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
    first, events = trace.first_ns(processes), list(trace.events(processes))
    shown = [event for event in events if event["ph"] == "X"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    for name, of in (("A typical step", 0.5), ("A slow step", _SLOW)):
        middle = int(np.abs(walls - np.quantile(walls, of)).argmin())
        stretch = steps.iloc[max(0, middle - _AROUND) : middle + _AROUND + 1]
        begun, ended = (int(stretch["begun_ns"].min()) - first) / 1e3, (int(stretch["ended_ns"].max()) - first) / 1e3
        lanes: dict[tuple[str, str], list[tuple[str, str, float, float]]] = {}
        for event in shown:
            if event["ts"] < ended and event["ts"] + event["dur"] > begun:
                lane = names[event["pid"]], event["tid"]
                kind = "once" if event["name"] == "wait for work" else _TRACKS[event["tid"]]
                lanes.setdefault(lane, []).append((event["name"], kind, event["ts"] / 1e3, event["dur"] / 1e3))
        yield {
            "name": name,
            "from": begun / 1e3,
            "to": ended / 1e3,
            "lanes": [
                {"name": who if who.startswith("worker") else track, "events": events}
                for (who, track), events in sorted(lanes.items())
            ],
        }
