"""How accurate is the throughput that feedrate reports? Planted cells beside an external clock.

The cells cover what a loader can be: no work, waiting, computing, both; from no workers to more than there are cores; a
loader alone, and one before an emulated step. Costs are spread over workers and steps as in a Latin square, so that 24
cells stand for all combinations.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from rich.progress import track

from feedrate.analysis import estimators
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


def cells(device: str) -> list[dict[str, Value]]:
    """List the planted cells: 24, two for each pair of workers and step."""
    planted = []
    for (row, workers), (column, step_ms), other in product(enumerate(WORKERS), enumerate(STEPS_MS), (0, 1)):
        read_us, decode_us = PLANTS[(2 * (row + column) + other) % len(PLANTS)]
        batch_size = BATCHES[(row + column + other) % len(BATCHES)]
        axes: dict[str, Value] = {"storage_format": "lmdb", "patch_size": 16, "read_us": read_us}
        axes |= {"decode_us": decode_us, "batch_size": batch_size, "num_workers": workers}
        axes |= {"mode": "load"} if step_ms is None else {"mode": "train", "step": "emulated", "step_ms": step_ms}
        planted.append(cell(device, **axes))
    return planted


def measure(session: Session) -> list[Figure]:
    """Run every planted cell ``REPEATS`` times, in a fresh random order each time; about four minutes."""
    planted, orders = cells(session.device), random.Random(0)
    session.console.print(f"Accuracy: {len(planted)} planted settings beside an external clock, {REPEATS} times ...")
    order = [(repeat, axes) for repeat in range(REPEATS) for axes in orders.sample(planted, len(planted))]
    with Template() as template:
        packed = session.ask(template, "prepare", planted[0])["packed"]
        for repeat, axes in track(order, "", console=session.console, transient=True):
            session.witnessed.append(_witness(session, template, axes, packed, repeat))
    return [judge(session.witnessed)]


def _witness(
    session: Session, template: Template, axes: Mapping[str, Value], packed: str, repeat: int
) -> WitnessedTrial:
    """Run a trial beside an external clock."""
    stamps: dict[str, int] = {}

    def watch(event: str, _: int, fields: Mapping[str, Any]) -> None:
        if event == "witness":
            stamps.update(fields["stamps"])

    result = session.ask(template, "witness", axes, watch, packed=packed, seed=repeat)
    batch_size, epoch_steps = int(axes["batch_size"]), result["epoch_steps"]
    return WitnessedTrial(
        cell_id=cell_id(axes),
        cell=dict(axes),
        repeat=repeat,
        samples=result["samples"],
        wall_ns=result["wall_ns"],
        witness_ns=stamps[CLOSES] - stamps[OPENS],
        epoch_steps=epoch_steps,
        epochs_samples=len(result["epochs"]) * epoch_steps * batch_size,
        epochs_witness_ns=stamps[EPOCHS_END] - stamps[EPOCHS_BEGIN],
        estimates=estimators.estimates(estimators.Steps.of(batch_size, result)),
    )


def judge(witnessed: Sequence[WitnessedTrial]) -> Figure:
    """Judge how far off the worst trial was."""
    errors = estimators.summary(estimators.frame(witnessed))
    ours: Mapping[Any, Any] = rows_of(errors[errors["estimator"] == estimators.OURS])[0]
    worst, counted = ours["worst_pct"], f"n = {ours['n']} measurements of {ours['cells']} planted settings"
    what, measured = (
        "throughput against an external clock, worst trial",
        f"median {ours['median_pct']:+.3f} %, {counted}",
    )
    return Figure(what, f"within {MOST_PCT:g} %", f"{worst:+.3f} % ({measured})", abs(worst) <= MOST_PCT)
