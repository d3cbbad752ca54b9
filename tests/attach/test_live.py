"""``--live``: what is drawn while a script runs, and that its own output is kept clear of it."""

from __future__ import annotations

import io
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from feedrate.attach import live
from feedrate.attach.records import BATCH, NEXT, TAKEN

MS = 1_000_000
SAMPLE: dict[str, Any] = {"cpu_util_pct": 50.0, "gpu_util_pct": 25.0, "gpu_mem_bytes": 3 << 30}


@pytest.fixture
def worker() -> Iterator[int]:
    """A process that lives."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process.pid


def watched(folder: Path, **sample: Any) -> Any:
    return SimpleNamespace(
        folder=folder, samples=[SAMPLE | sample], command=["python", "train.py"], began_ns=time.perf_counter_ns()
    )


def write(folder: Path, pid: int, *rows: tuple[int, ...]) -> None:
    array = np.array([row + (0,) * (12 - len(row)) for row in rows], np.int64)
    (folder / f"{pid}-1.records").write_bytes(array.tobytes() + bytes(800))


def steps(now: int, wait_ms: int, lying: int = 2) -> list[tuple[int, ...]]:
    """Twenty steps of 100 ms until now, each with its wait."""
    starts = (now - 100 * MS * place for place in range(20, 0, -1))
    return [(NEXT, start, start + wait_ms * MS, 0, 0, lying) for start in starts]


def terminal(height: int = 30) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, height=height, _environ={"TERM": "xterm"})


def drawn(console: Console) -> list[str]:
    """What stands in the footer's lines after everything that was written."""
    lines: dict[int, str] = {}
    for row, text in re.findall(r"\x1b\[(\d+);1H\x1b\[2K(.*?)(?=\x1b\[\d+;1H|\x1b8)", console.file.getvalue()):
        lines[int(row)] = re.sub(r"\x1b\[[\d;]*m", "", text).replace("\u00a0", " ").rstrip()
    return [lines[row] for row in sorted(lines)]


def test_a_terminal_shows_loop_machine_and_workers(tmp_path: Path, worker: int) -> None:
    """Pace, queue, a bar of waits, CPU, GPU, and each worker with what it does are drawn, in this order."""
    now = time.perf_counter_ns()
    write(tmp_path, 1, *steps(now, 60))
    batches = [(BATCH, now - (900 - 90 * n) * MS, now - (810 - 90 * n) * MS, 0, n, 8, 0, 45 * MS) for n in range(9)]
    write(tmp_path, worker, *batches, (TAKEN, now - 2 * MS, now - MS, 0, 9))
    console = terminal()
    with live.View(console) as view:
        view.look(watched(tmp_path))
        title, pace, waits, cpu, gpu, head, row = drawn(console)
    assert re.fullmatch(r"── feedrate  python train.py  0 s ──", title)
    assert pace == "10.0 steps/s, 2 batches lie ready"
    assert waits == "waits " + "█" * 14 + "░" * 10 + " 60 %"
    assert cpu == "CPU   " + "█" * 12 + "░" * 12 + " 50 %"
    assert gpu == "GPU   " + "█" * 6 + "░" * 18 + " 25 %, 3.0 GiB in use"
    assert head.split() == ["worker", "does", "busy", "computing", "batches/s"]
    assert re.fullmatch(r" +0  prepares batch 9, for \d+ ms +\d+ % +\d+ % +[\d.]+", row)


@pytest.mark.parametrize(
    ("kind", "ago_ms", "words"),
    [(TAKEN, 700, "prepares batch 5, for 7"), (BATCH, 100, "waits for work"), (BATCH, 4000, "idle for 4 s")],
)
def test_a_worker_is_shown_by_what_it_does(tmp_path: Path, worker: int, kind: int, ago_ms: int, words: str) -> None:
    """A worker prepares, waits for work or is idle; one that has ended is not shown."""
    ended = time.perf_counter_ns() - ago_ms * MS
    for pid in (worker, 2**22 + 1):  # the second is no process
        write(tmp_path, pid, (kind, ended - MS, ended, 3, 5))
    console = terminal()
    live.View(console).look(watched(tmp_path))
    rows = [line for line in drawn(console) if re.match(r" +3  ", line)]
    assert len(rows) == 1
    assert words in rows[0]


def test_of_several_processes_the_one_that_waits_most_is_shown(tmp_path: Path) -> None:
    """Steps of replicas are not added up."""
    now = time.perf_counter_ns()
    for pid, wait in ((1, 20), (2, 80)):
        write(tmp_path, pid, *steps(now, wait, lying=1))
    console = terminal()
    live.View(console).look(watched(tmp_path, gpu_util_pct=None))
    _, pace, waits, cpu = drawn(console)
    assert pace == "10.0 steps/s, 1 batch lies ready, the slowest of 2 processes"
    assert waits.endswith("80 %")
    assert cpu.startswith("CPU")


def test_the_scripts_output_is_kept_clear(tmp_path: Path, worker: int) -> None:
    """The script's output scrolls above the footer, which grows, leaves room, and is given back."""
    console = terminal(height=12)
    view = live.View(console)
    view.look(watched(tmp_path))
    assert "\x1bD\x1bD\x1bD\x1bD\x1b[4A\x1b7\x1b[1;8r\x1b8" in console.file.getvalue()
    view._next = 0
    for number in range(20):
        write(tmp_path, 2**22 + 2 + number, (TAKEN, 1, time.perf_counter_ns(), number, 5))
    (tmp_path / f"{2**22 + 2}-1.records").rename(tmp_path / f"{worker}-1.records")
    view.look(watched(tmp_path))
    assert "\x1b[1;6r" in console.file.getvalue()
    assert len(drawn(console)) == 6
    view.__exit__()
    assert console.file.getvalue().endswith("\x1b8")
    assert "\x1b[r" in console.file.getvalue()
    assert drawn(console) == [""] * 6


@pytest.mark.parametrize("options", [{}, {"force_terminal": True, "_environ": {"TERM": "dumb"}}])
def test_without_a_terminal_it_is_lines(tmp_path: Path, options: dict[str, Any]) -> None:
    """A file or a dumb terminal gets one plain line each time."""
    write(tmp_path, 1, *steps(time.perf_counter_ns(), 60))
    console = Console(file=io.StringIO(), width=40, no_color=True, **options)
    with live.View(console) as view:
        view.look(watched(tmp_path))
    said = console.file.getvalue().replace("\u00a0", " ")
    assert re.fullmatch(
        r"feedrate: 10.0 steps/s, 2 batches lie ready; waits █+░+ 60 %; CPU +█+░+ 50 %; GPU +█+░+ 25 %, 3.0 GiB .*\n",
        said,
    )
