"""How fast feedrate is itself: a trial's start, a plan, a site, what the parent of a sweep takes, whether phases close.

Starts from a template and from fresh interpreters take turns, and the ratio is what counts: times on a shared machine
vary by some per cent between minutes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from feedrate.bench.session import Figure, Session, judge, seconds
from feedrate.plan import request
from feedrate.schema.columns import PHASES
from feedrate.site import build
from feedrate.sweep import screen, sweep
from feedrate.sweep.launcher import Template

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


def measure(session: Session) -> Iterator[Figure]:
    """Take the figures of speed; about two and a half minutes, one of which is a sweep."""
    session.console.print("Starting trials from a template and from fresh interpreters, in turns ...")
    yield from _starts(session.folder / "data")
    session.console.print("Planning ...")
    command = [sys.executable, "-P", "-m", "feedrate", "plan"]
    took_s = [seconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(5)]
    yield judge("make plan", "≤ 0.7 s", took_s, digits=2, unit=" s")
    session.console.print("One minute of the quick profile ...")
    results = session.folder / "results"
    with screen.TerminalScreen(session.console) as terminal:
        options = request.Options(results=results, data_root=session.folder / "data", budget="60s")
        run = sweep.run(request.make(options), terminal)
    if run is None:
        raise KeyboardInterrupt
    trials, parent = run.table("trials"), run.manifest.parent_cpu_pct
    measured = f"{parent:.1f} % (one sweep, {len(trials)} trials)"
    yield Figure("parent's CPU during a sweep, probes included", "≤ 3 % of a core", measured, parent <= 3)
    ended = trials[trials["outcome"] == "ok"]
    phases = ended[[f"host_{phase}_ns" for phase in PHASES]].fillna(0).sum(axis=1)
    closure = 100 * (phases / ended["wall_ns"] - 1).abs()
    measured = f"{closure.max():.3f} % (median {closure.median():.4f} %, n = {len(ended)})"
    yield Figure("closure |Σ phases − wall| ÷ wall, worst trial", "≤ 1 %", measured, bool(closure.max() <= 1))
    session.console.print("Building its site ...")
    site_s = seconds(lambda: build.build(results, session.folder / "build"))
    yield Figure("site build of a quick run", "≤ 20 s", f"{site_s:.1f} s (n = 1)", site_s <= 20)


def _starts(data: Path) -> Iterator[Figure]:
    def job(kind: str, packed: str | None = None) -> str:
        return json.dumps({"kind": kind, "cell": _CELL, "data_root": str(data), "packed": packed, "warmup_s": 0.0})

    forked_ms: list[float] = []
    ratios: list[float] = []
    with Template() as template:
        prepared = template.run(job("prepare"), timeout_s=60, watch=lambda *_: None)
        trial = job("trial", prepared.result["packed"])
        for _ in range(_PAIRS):
            fresh_ms = _fresh_start_ms(trial)
            answers = [template.run(trial, timeout_s=60, watch=lambda *_: None) for _ in range(_FORKS_A_PAIR)]
            took_ms = [((answer.first_batch_ns or 0) - answer.ordered_ns) / 1e6 for answer in answers]
            forked_ms += took_ms
            ratios.append(fresh_ms / statistics.median(took_ms))
    first = "order of a trial to its first batch (synthetic, no workers)"
    yield judge(first, "≤ 60 ms", forked_ms, digits=0, unit=" ms")
    yield judge("the same in a fresh interpreter ÷ in a fork", "≥ 30×", ratios, digits=0, unit="×")


def _fresh_start_ms(job: str) -> float:
    """From starting an interpreter to its first batch."""
    reading, writing = os.pipe()
    begun = time.perf_counter_ns()
    command = [sys.executable, "-P", "-m", "feedrate.trial.child", str(writing)]
    with subprocess.Popen(command, pass_fds=[writing], stdin=subprocess.PIPE) as child:
        os.close(writing)
        assert child.stdin is not None  # noqa: S101 - it was asked for
        child.stdin.write(job.encode())
        child.stdin.close()
        with os.fdopen(reading) as answers:
            first: dict[str, int] = json.loads(answers.readline())
        child.kill()
    return (first["t_ns"] - begun) / 1e6
