"""How accurate is the throughput that feedrate reports?

Accuracy: planted cells beside an external clock. They cover what a loader can be: no work, waiting, computing, both;
from no workers to more than there are cores; a loader alone, and one before an emulated step. Costs are spread over
workers and steps as in a Latin square, so that 24 cells stand for all combinations.

Windows: short ones beside long ones, with a stock that a window must not begin with.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from rich.progress import track

from feedrate.analysis import estimators
from feedrate.analysis.estimate import half_width
from feedrate.analysis.estimates import rows_of
from feedrate.bench.session import Figure, Session, cell
from feedrate.schema.axes import Value, cell_id
from feedrate.store.bench_record import WitnessedTrial
from feedrate.sweep.launcher import Template
from feedrate.trial.witness import CLOSES, EPOCHS_BEGIN, EPOCHS_END, OPENS

REPEATS = 3
MOST_PCT = 1.0
PLANTS = ((0, 0), (500, 0), (2000, 0), (0, 500), (500, 500), (2000, 500))
"""(read_us, decode_us) of every sample."""
WORKERS = (0, 1, 2, 4)
STEPS_MS: tuple[float | None, ...] = (None, 5.0, 20.0)
"""Emulated step; None drains the loader alone."""
BATCHES = (8, 32)
SHORT_S, LONG_S = 0.6, 6.0
"""Windows that are held against each other."""
WINDOW_PCT = 0.3
STOCK = {"num_workers": 8, "prefetch_factor": 2}
WAITS_US = (2000, 5000)
"""Of a sample's read; eight workers only wait, so that two cores do."""
PAIRS, SHORTS = 12, 3
"""Of each wait: long windows, and the short ones beside each."""


def cells(device: str) -> list[dict[str, Value]]:
    """List the planted cells: 24, two for each pair of workers and step."""
    planted = []
    for (row, workers), (column, step_ms), other in product(enumerate(WORKERS), enumerate(STEPS_MS), (0, 1)):
        read_us, decode_us = PLANTS[(2 * (row + column) + other) % len(PLANTS)]
        axes: dict[str, Value] = {
            "storage_format": "lmdb",
            "patch_size": 16,
            "read_us": read_us,
            "decode_us": decode_us,
            "batch_size": BATCHES[(row + column + other) % len(BATCHES)],
            "num_workers": workers,
        }
        axes |= {"mode": "load"} if step_ms is None else {"mode": "train", "step": "emulated", "step_ms": step_ms}
        planted.append(cell(device, **axes))
    return planted


def measure(session: Session) -> list[Figure]:
    """Run every planted cell ``REPEATS`` times, in a fresh random order each time, then windows; about ten minutes."""
    planted, orders = cells(session.device), random.Random(0)
    session.console.print(f"Accuracy: {len(planted)} planted cells beside an external clock, {REPEATS} times ...")
    order = [(repeat, each) for repeat in range(REPEATS) for each in orders.sample(planted, len(planted))]
    with Template() as template:
        packed = session.ask(template, "prepare", planted[0])["packed"]
        for repeat, each in track(order, "", console=session.console, transient=True):
            result, stamps = _witnessed(session, template, each, packed=packed, seed=repeat)
            batch_size, epoch_steps = int(each["batch_size"]), result["epoch_steps"]
            session.witnessed.append(
                WitnessedTrial(
                    cell_id=cell_id(each),
                    cell=dict(each),
                    repeat=repeat,
                    samples=result["samples"],
                    wall_ns=result["wall_ns"],
                    witness_ns=stamps[CLOSES] - stamps[OPENS],
                    epoch_steps=epoch_steps,
                    epochs_samples=len(result["epochs"]) * epoch_steps * batch_size,
                    epochs_witness_ns=stamps[EPOCHS_END] - stamps[EPOCHS_BEGIN],
                    estimates=estimators.estimates(estimators.Steps.of(batch_size, result)),
                )
            )
    return [judge_accuracy(session.witnessed), _measure_windows(session)]


def _witnessed(
    session: Session, template: Template, cell: Mapping[str, Value], **more: Any
) -> tuple[dict[str, Any], dict[str, int]]:
    """Run a trial beside an external clock; gives its result and the clock's stamps."""
    stamps: dict[str, int] = {}

    def watch(event: str, _: int, fields: Mapping[str, Any]) -> None:
        if event == "witness":
            stamps.update(fields["stamps"])

    return session.ask(template, "witness", cell, watch, **more), stamps


def judge_accuracy(witnessed: Sequence[WitnessedTrial]) -> Figure:
    """Judge how far off the worst trial was."""
    errors = estimators.summary(estimators.frame(witnessed))
    ours: Mapping[Any, Any] = rows_of(errors[errors["estimator"] == estimators.OURS])[0]
    worst = ours["worst_pct"]
    return Figure(
        "throughput against an external clock, worst trial",
        f"within {MOST_PCT:g} %",
        f"{worst:+.3f} % (median {ours['median_pct']:+.3f} %, n = {ours['n']} trials of {ours['cells']} planted cells)",
        abs(worst) <= MOST_PCT,
    )


def _measure_windows(session: Session) -> Figure:
    """Hold short windows against long ones by an external clock, in turns; about six minutes."""
    session.console.print(f"Windows: {SHORT_S:g} s beside {LONG_S:g} s by an external clock, 8 workers ...")
    cells = [
        cell(session.device, mode="load", storage_format="lmdb", patch_size=16, batch_size=8, read_us=wait, **STOCK)
        for wait in WAITS_US
    ]
    ratios = []
    order = [(pair, each) for pair in range(PAIRS) for each in cells]
    with Template() as template:
        packed = session.ask(template, "prepare", cells[0])["packed"]
        for pair, each in track(order, "", console=session.console, transient=True):
            shorts = []
            for window_s in (LONG_S, *[SHORT_S] * SHORTS)[:: 1 if pair % 2 else -1]:
                result, stamps = _witnessed(session, template, each, packed=packed, seed=pair, window_s=window_s)
                if window_s == SHORT_S:
                    shorts.append(result["samples_per_s"])
                else:
                    long = result["samples"] * 1e9 / (stamps[CLOSES] - stamps[OPENS])
            ratios.append(float(np.mean(shorts)) / long)
    logs = np.log(ratios)
    off, half = 100 * float(logs.mean()), 100 * float(half_width(logs.std(ddof=1), len(logs)))
    measured = f"{off:+.2f} % ({off - half:+.2f} to {off + half:+.2f}, n = {len(logs)} pairs)"
    what = "windows of 0.6 s beside one of 6 s by an external clock, 8 workers"
    return Figure(what, f"within {WINDOW_PCT:g} %", measured, abs(off) <= WINDOW_PCT)
