"""What timing costs: a step's stamps, a batch's stamps in a worker, and both together in real training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from harness.analysis.blocks import half_width
from harness.bench.place import Place, ask, cell
from harness.bench_record import Promise
from harness.launcher import Template
from harness.registry import ROOT

SECTION = "instrumentation"
STEP_US = 10.0
EVENTS_US = 30.0
BATCH_US = 100.0
RATIO = 1.02


def measure(place: Place) -> list[Promise]:
    """Measure each cost alone, then real training with and without; about half a minute."""
    place.say("Instrumentation: loops with and without stamps, in turns ...")
    training = cell(
        place.device, mode="train", step="real", storage_format="lmdb", patch_size=16, batch_size=16, num_workers=0
    )
    with Template(ROOT) as template:
        packed = place.packed(template, training)
        result = ask(template, place.job("instrumentation", training, packed=packed))
    return [
        _cost("host time of a step's stamps, measured alone (three stages)", STEP_US, result["loop_ns"], "step"),
        _cost("the same with CUDA events", EVENTS_US, result["events_ns"], "step"),
        _cost(
            "stamps of a worker, measured alone in one process (batches of 32)", BATCH_US, result["stamps_ns"], "batch"
        ),
        ratio(result["training"], result["pair_steps"]),
    ]


def _cost(what: str, most_us: float, costs_ns: Sequence[float] | None, unit: str) -> Promise:
    target = f"≤ {most_us:g} µs a {unit}"
    if costs_ns is None:
        return Promise(section=SECTION, what=what, target=target, measured="no CUDA device here", met=None)
    costs = [cost / 1000 for cost in costs_ns]
    middle = statistics.median(costs)
    spread = f"{min(costs):.1f}–{max(costs):.1f}, n = {len(costs)} pairs"
    return Promise(
        section=SECTION,
        what=what,
        target=target,
        measured=f"{middle:.1f} µs ({spread})",
        met=middle <= most_us,
    )


def ratio(pairs: Sequence[float], steps: int) -> Promise:
    """Judge paired step-time ratios, instrumented ÷ bare, by the Student-t interval of the mean of their logs.

    Args:
        pairs: a ratio a pair of windows.
        steps: in a window.
    """
    logs = np.log(pairs)
    middle, half = float(logs.mean()), float(half_width(logs.std(ddof=1), len(logs)))
    lo, hi = np.exp(middle - half), np.exp(middle + half)
    return Promise(
        section=SECTION,
        what="step time of SRCNN on the CPU, instrumented ÷ bare (batch 16, patch 16)",
        target=f"95 % interval below {RATIO:g}",
        measured=f"{np.exp(middle):.4f} ({lo:.4f}–{hi:.4f}, n = {len(pairs)} pairs of {steps} steps)",
        met=bool(hi < RATIO),
    )
