"""What feedrate itself costs: a trial's start, a plan, the parent of a sweep, and the stamps of a step.

A step's stamps are held against real training without them, in turns, in one process. What they take alone, and those
of a worker, are held by tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from feedrate.bench.session import Figure, Session, cell, judge_median, judge_ratio, run_command
from feedrate.plan import request
from feedrate.plan.options import SweepOptions
from feedrate.schema.columns import PHASES
from feedrate.sweep import screen, sweep
from feedrate.sweep.launcher import Template

_STARTS = 25
RATIO = 1.02
"""What a step with stamps may take of one without."""


def measure(session: Session) -> Iterator[Figure]:
    """Take the figures of speed; about two and a half minutes, one of which is a sweep."""
    session.console.print("Starting measurements ...")
    yield _starts(session.folder / "data")
    session.console.print("Planning ...")
    yield judge_median("make plan", 0.7, [run_command("plan").took_s for _ in range(5)], "s")
    yield from _sweep(session)
    yield _stamps(session)


def _starts(data: Path) -> Figure:
    axes = {"workload": "synthetic", "mode": "train", "step": "real", "model": "srcnn", "storage_format": "png"}
    sizes = {"n_samples": 1024, "patch_size": 16, "batch_size": 32, "num_workers": 0}
    job = {"cell": axes | sizes, "data_root": str(data), "packed": None, "warmup_s": 0.0}
    with Template() as template:
        prepared = template.run(json.dumps(job | {"kind": "prepare"}), timeout_s=60, watch=lambda *_: None)
        trial = json.dumps(job | {"kind": "trial", "packed": prepared.result["packed"]})
        answers = [template.run(trial, timeout_s=60, watch=lambda *_: None) for _ in range(_STARTS)]
    took_ms = [((answer.first_batch_ns or 0) - answer.ordered_ns) / 1e6 for answer in answers]
    return judge_median("order of a trial to its first batch (synthetic, no workers)", 60, took_ms, "ms")


def _sweep(session: Session) -> Iterator[Figure]:
    session.console.print("One minute of the quick profile ...")
    options = SweepOptions(results=session.folder / "results", data_root=session.folder / "data", budget="60s")
    with screen.TerminalScreen(session.console) as terminal:
        run = sweep.run(request.make(options), terminal)
    if run is None:
        raise KeyboardInterrupt
    trials, parent = run.table("trials"), run.manifest.parent_cpu_pct
    measured = f"{parent:.1f} % (one sweep, {len(trials)} measurements)"
    yield Figure("parent's CPU during a sweep, probes included", "≤ 3 % of a core", measured, parent <= 3)
    ended = trials[trials["outcome"] == "ok"]
    phases = ended[[f"host_{phase}_ns" for phase in PHASES]].fillna(0).sum(axis=1)
    closure = 100 * (phases / ended["wall_ns"] - 1).abs()
    measured = f"{closure.max():.3f} % (median {closure.median():.4f} %, n = {len(ended)})"
    yield Figure("closure |Σ phases − wall| ÷ wall, worst trial", "≤ 1 %", measured, bool(closure.max() <= 1))


def _stamps(session: Session) -> Figure:
    session.console.print("Instrumentation: training with and without stamps, in turns ...")
    sizes = {"patch_size": 16, "batch_size": 16, "num_workers": 0}
    training = cell(session.device, mode="train", step="real", storage_format="lmdb", **sizes)
    with Template() as template:
        packed = session.ask(template, "prepare", training)["packed"]
        result = session.ask(template, "instrumentation", training, packed=packed)
    name, counted = "GPU" if session.device == "cuda" else "CPU", f"pairs of {result['pair_steps']} steps"
    what = f"step time of SRCNN on the {name}, instrumented ÷ bare (batch 16, patch 16)"
    return judge_ratio(what, RATIO, result["training"], counted)
