"""How accurate is the throughput that feedrate reports? Planted cells beside an external clock.

The cells cover what a loader can be: no work, waiting, computing, both; from no workers to more than there are cores;
a loader alone, and one before an emulated step. Costs are spread over workers and steps as in a Latin square, so that
24 cells stand for all combinations.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from typing import Any

from rich.progress import track

from harness.analysis import estimators
from harness.analysis.rows import rows_of
from harness.axes import Value, cell_id
from harness.bench.place import Place, ask, cell
from harness.bench_record import Promise, WitnessedTrial
from harness.launcher import Template
from harness.registry import ROOT
from harness.trial.witness import CLOSES, EPOCHS_BEGIN, EPOCHS_END, OPENS

SECTION = "accuracy"
REPEATS = 3
MOST_PCT = 1.0
PLANTS = ((0, 0), (500, 0), (2000, 0), (0, 500), (500, 500), (2000, 500))
"""(read_us, decode_us) of every sample."""
WORKERS = (0, 1, 2, 4)
STEPS_MS: tuple[float | None, ...] = (None, 5.0, 20.0)
"""Emulated step; None drains the loader alone."""
BATCHES = (8, 32)


def cells(device: str) -> list[dict[str, Value]]:
    """List the planted cells: 24, two for each pair of workers and step."""
    found = []
    for (row, workers), (column, step_ms), other in product(enumerate(WORKERS), enumerate(STEPS_MS), (0, 1)):
        read_us, decode_us = PLANTS[(2 * (row + column) + other) % len(PLANTS)]
        step = {"mode": "load"} if step_ms is None else {"mode": "train", "step": "emulated", "step_ms": step_ms}
        axes: dict[str, Value] = {
            "storage_format": "lmdb",
            "patch_size": 16,
            "read_us": read_us,
            "decode_us": decode_us,
            "batch_size": BATCHES[(row + column + other) % len(BATCHES)],
            "num_workers": workers,
        }
        found.append(cell(device, **axes, **step))
    return found


def measure(place: Place) -> tuple[list[Promise], list[WitnessedTrial]]:
    """Run every planted cell ``REPEATS`` times, in a fresh random order each time; about two minutes and a half."""
    planted, orders = cells(place.device), random.Random(0)
    place.say(f"Accuracy: {len(planted)} planted cells beside an external clock, {REPEATS} times ...")
    order = [(repeat, each) for repeat in range(REPEATS) for each in orders.sample(planted, len(planted))]
    found = []
    with Template(ROOT) as template:
        packed = place.packed(template, planted[0])
        for repeat, each in track(order, "", console=place.console, transient=True):
            found.append(_trial(place, template, packed, repeat, each))
    return [promise(found)], found


def _trial(place: Place, template: Template, packed: str, repeat: int, planted: Mapping[str, Value]) -> WitnessedTrial:
    stamps: dict[str, int] = {}

    def hear(event: str, _: int, fields: Mapping[str, Any]) -> None:
        if event == "witness":
            stamps.update(fields["stamps"])

    result = ask(template, place.job("witness", planted, packed=packed, seed=repeat), hear)
    batch_size = int(planted["batch_size"])
    return WitnessedTrial(
        cell_id=cell_id(planted),
        cell=dict(planted),
        repeat=repeat,
        samples=result["samples"],
        wall_ns=result["wall_ns"],
        witness_ns=stamps[CLOSES] - stamps[OPENS],
        epoch_steps=result["epoch_steps"],
        epochs_samples=len(result["epochs"]) * result["epoch_steps"] * batch_size,
        epochs_witness_ns=stamps[EPOCHS_END] - stamps[EPOCHS_BEGIN],
        estimates=estimators.estimates(estimators.Steps.of(batch_size, result)),
    )


def promise(witnessed: list[WitnessedTrial]) -> Promise:
    """Say how far off the worst trial was."""
    found = estimators.summary(estimators.frame(witnessed))
    ours: Mapping[Any, Any] = rows_of(found[found["estimator"] == estimators.OURS])[0]
    worst, middle = ours["worst_pct"], ours["median_pct"]
    return Promise(
        section=SECTION,
        what="throughput against an external clock, worst trial",
        target=f"within {MOST_PCT:g} %",
        measured=f"{worst:+.3f} % (median {middle:+.3f} %, n = {ours['n']} trials of {ours['cells']} planted cells)",
        met=abs(worst) <= MOST_PCT,
    )
