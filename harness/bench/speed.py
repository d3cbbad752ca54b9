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
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import here, records, screen, site, store, sweep
from harness.bench.place import Place
from harness.bench_record import Promise
from harness.launcher import Template
from harness.registry import ROOT

SECTION = "speed"
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


def measure(place: Place) -> list[Promise]:
    """Take the figures of speed; about two and a half minutes, one of which is a sweep."""
    place.say("Starting trials from a template and from fresh interpreters, in turns ...")
    found = _starts(place.folder)
    place.say("Planning ...")
    found.append(_plan())
    place.say("One minute of the quick profile ...")
    with screen.TerminalScreen(place.console) as terminal:
        options = here.Options(results=place.folder / "results", data_root=place.folder / "data", budget="60s")
        run = sweep.run(here.make(options), terminal)
    if run is None:
        raise KeyboardInterrupt
    found += _sweep(run)
    place.say("Building its site ...")
    found.append(_site(place.folder))
    return found


def _promise(what: str, target: str, measured: str, *, met: bool) -> Promise:
    return Promise(section=SECTION, what=what, target=target, measured=measured, met=met)


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


def _starts(place: Path) -> list[Promise]:
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
    return [
        _promise(
            "order of a trial to its first batch (synthetic, no workers)",
            "≤ 60 ms",
            f"{middle:.0f} ms ({_range(forked, 0)})",
            met=middle <= 60,
        ),
        _promise(
            "the same in a fresh interpreter ÷ in a fork",
            "≥ 30×",
            f"{ratio:.0f}× ({_range(ratios, 0)})",
            met=ratio >= 30,
        ),
    ]


def _range(values: Sequence[float], places: int) -> str:
    return f"{min(values):.{places}f}–{max(values):.{places}f}, n = {len(values)}"


def _seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _plan() -> Promise:
    command = [sys.executable, "-m", "harness", "plan"]
    took = [_seconds(lambda: subprocess.run(command, cwd=ROOT, check=True, capture_output=True)) for _ in range(5)]
    middle = statistics.median(took)
    return _promise("make plan", "≤ 0.7 s", f"{middle:.2f} s ({_range(took, 2)})", met=middle <= 0.7)


def _sweep(run: store.StoredRun) -> list[Promise]:
    trials = run.table("trials")
    ended = trials[trials["outcome"] == "ok"]
    total = ended[[f"host_{phase}_ns" for phase in records.PHASES]].fillna(0).sum(axis=1)
    closure = 100 * (total / ended["wall_ns"] - 1).abs()
    parent = run.manifest.parent_cpu_pct
    return [
        _promise(
            "parent's CPU during a sweep, probes included",
            "≤ 3 % of a core",
            f"{parent:.1f} % (one sweep, {len(trials)} trials)",
            met=parent <= 3,
        ),
        _promise(
            "closure |Σ phases − wall| ÷ wall, worst trial",
            "≤ 1 %",
            f"{closure.max():.3f} % (median {closure.median():.4f} %, n = {len(ended)})",
            met=bool(closure.max() <= 1),
        ),
    ]


def _site(place: Path) -> Promise:
    took = _seconds(lambda: site.build(place / "results", place / "build"))
    return _promise("site build of a quick run", "≤ 20 s", f"{took:.1f} s (n = 1)", met=took <= 20)
