"""What feedrate promises of itself, measured: how fast a trial starts, what the harness costs, whether phases close.

Times on a shared machine vary by some per cent between minutes: where two things are compared they take turns, and the
ratio is what counts. A figure that misses its target is printed as missed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness import here, records, screen, site, store, sweep
from harness.launcher import Template
from harness.registry import ROOT

_CELL = {
    "workload": "synthetic",
    "mode": "train",
    "step": "real",
    "model": "srcnn",
    "storage_format": "png",
    "n_samples": 1024,
    "patch_size": 16,
    "batch_size": 32,
    "num_workers": 0,
}
_PAIRS = 5
_FORKS_A_PAIR = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One promise and what was seen."""

    what: str
    target: str
    measured: str
    met: bool


def measure(console: Console) -> list[Figure]:
    """Take all figures; about three minutes.

    Args:
        console: where progress goes.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        console.print("Starting trials from a template and from fresh interpreters, in turns ...")
        found = _starts(place)
        console.print("Planning ...")
        found.append(_plan())
        console.print("One minute of the quick profile ...")
        with screen.TerminalScreen(console) as terminal:
            options = here.Options(results=place / "results", data_root=place / "data", budget="60s")
            run = sweep.run(here.make(options), terminal)
        if run is None:
            raise KeyboardInterrupt
        found += _sweep(run)
        console.print("Building its site ...")
        found.append(_site(place))
    return found


def show(figures: list[Figure], console: Console) -> None:
    """Print the figures as a table."""
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for heading in ("figure", "target", "measured", ""):
        table.add_column(heading)
    for figure in figures:
        table.add_row(figure.what, figure.target, figure.measured, "met" if figure.met else "MISSED")
    console.print(table)


def _job(data: Path, kind: str, packed: str | None = None) -> str:
    return json.dumps({"kind": kind, "cell": _CELL, "data_root": str(data), "packed": packed, "warmup_s": 0.0})


def _fresh_start_ms(job: str) -> float:
    """From starting an interpreter to its first batch."""
    reading, writing = os.pipe()
    begun = time.perf_counter_ns()
    with subprocess.Popen(
        [sys.executable, "-m", "harness.trial.child", str(writing)], pass_fds=[writing], stdin=subprocess.PIPE, cwd=ROOT
    ) as child:
        os.close(writing)
        assert child.stdin is not None  # noqa: S101 - it was asked for
        child.stdin.write(job.encode())
        child.stdin.close()
        with os.fdopen(reading) as answers:
            first: dict[str, int] = json.loads(answers.readline())
        child.kill()
    return (first["t_ns"] - begun) / 1e6


def _starts(place: Path) -> list[Figure]:
    data = place / "data"
    forked: list[float] = []
    ratios: list[float] = []
    with Template(ROOT) as template:
        prepared = template.run(_job(data, "prepare"), timeout_s=60, watch=lambda *_: None)
        job = _job(data, "trial", prepared.result["packed"])
        for _ in range(_PAIRS):
            fresh = _fresh_start_ms(job)
            mine = []
            for _ in range(_FORKS_A_PAIR):
                answer = template.run(job, timeout_s=60, watch=lambda *_: None)
                mine.append(((answer.first_batch_ns or 0) - answer.ordered_ns) / 1e6)
            forked += mine
            ratios.append(fresh / statistics.median(mine))
    middle, ratio = statistics.median(forked), statistics.median(ratios)
    spread = f"{min(forked):.0f}–{max(forked):.0f}, n = {len(forked)}"
    return [
        Figure(
            "order of a trial to its first batch (synthetic, no workers)",
            "≤ 60 ms",
            f"{middle:.0f} ms ({spread})",
            middle <= 60,
        ),
        Figure(
            "the same in a fresh interpreter ÷ in a fork",
            "≥ 30×",
            f"{ratio:.0f}× ({min(ratios):.0f}–{max(ratios):.0f}, n = {len(ratios)})",
            ratio >= 30,
        ),
    ]


def _seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _plan() -> Figure:
    command = [sys.executable, "-m", "harness", "plan"]
    took = [_seconds(lambda: subprocess.run(command, cwd=ROOT, check=True, capture_output=True)) for _ in range(5)]
    middle = statistics.median(took)
    return Figure("make plan", "≤ 0.7 s", f"{middle:.2f} s ({min(took):.2f}–{max(took):.2f}, n = 5)", middle <= 0.7)


def _sweep(run: store.StoredRun) -> list[Figure]:
    trials = run.table("trials")
    ended = trials[trials["outcome"] == "ok"]
    total = ended[[f"host_{phase}_ns" for phase in records.PHASES]].fillna(0).sum(axis=1)
    closure = 100 * (total / ended["wall_ns"] - 1).abs()
    parent = run.manifest.parent_cpu_pct
    return [
        Figure("parent's CPU during a sweep, probes included", "≤ 3 % of a core", f"{parent:.1f} %", parent <= 3),
        Figure(
            "closure |Σ phases − wall| ÷ wall, worst trial",
            "≤ 1 %",
            f"{closure.max():.3f} % (median {closure.median():.4f} %, n = {len(ended)})",
            bool(closure.max() <= 1),
        ),
    ]


def _site(place: Path) -> Figure:
    took = _seconds(lambda: site.build(place / "results", place / "build"))
    return Figure("site build of a quick run", "≤ 20 s", f"{took:.1f} s", took <= 20)
