"""What the newest calibration run says: are planted costs read back, effects told apart, held-out cells predicted?

A calibration run takes longer than a bench: it is a sweep of its own (``make sweep SUITE=calibration``), and its
records are read here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from harness import store
from harness.analysis import calibration, prediction
from harness.analysis.rows import rows_of
from harness.bench.place import Place
from harness.bench_record import Promise
from harness.suite import CALIBRATION

SECTION = "calibration"
READ_BACK_PCT = 5.0
CHANCE = 0.15
"""Three of twenty: a perfect 5 % test gives more than one of twenty in a quarter of all runs."""
PREDICTED = {"num_workers": 1.0, "batch_size": 0.9}
"""Share of held-out cells that the model must predict within its limits."""
MISNAMED = 0.05
"""Share of planted bottlenecks that may be missed."""

Say = Callable[[str, str, str, bool], Promise]
"""(figure, target, measured, met) → what is recorded."""


def newest(results: Sequence[store.StoredRun], machine_id: str) -> store.StoredRun | None:
    """The machine's newest run of the suite, or None; ``results`` come oldest first."""
    own = (run for run in reversed(results) if run.manifest.machine.machine_id == machine_id)
    return next((run for run in own if CALIBRATION in run.manifest.suites), None)


def measure(place: Place) -> list[Promise]:
    """Read the records; some seconds."""
    place.say("Calibration: reading the newest run of that suite ...")
    run = newest(store.runs(place.results), place.machine_id)
    if run is None:
        return [
            Promise(
                section=SECTION,
                what="planted costs are read back",
                target=f"within {READ_BACK_PCT:g} %",
                measured="no calibration run of this machine: make sweep SUITE=calibration",
                met=None,
            )
        ]

    def say(what: str, target: str, measured: str, met: bool) -> Promise:
        return Promise(section=SECTION, what=what, target=target, measured=f"{measured}; run {run_id}", met=met)

    run_id, trials = run.manifest.run_id, run.table("trials")
    machine = run.manifest.machine
    cores = min(machine.cores_logical, machine.cpu_quota_cores or machine.cores_logical)
    return [
        *_read_back(trials, say),
        *_verdicts(trials, say),
        *_predicted(prediction.held_out(trials, run.table("steps"), cores), say),
    ]


def _read_back(trials: pd.DataFrame, say: Say) -> list[Promise]:
    return [
        say(
            f"planted {row['quantity']} is read back, worst cell",
            f"within {READ_BACK_PCT:g} %",
            f"{row['worst_pct']:+.1f} % (median size {row['median_pct']:.1f} %, {row['cells']} cells, n ≥ {row['n']})",
            abs(row["worst_pct"]) <= READ_BACK_PCT,
        )
        for row in rows_of(calibration.summary(calibration.planted(trials)))
    ]


def _verdicts(trials: pd.DataFrame, say: Say) -> list[Promise]:
    effects, pairs = calibration.effects(trials), calibration.same_pairs(trials)
    named = calibration.bottlenecks(trials)
    failures: Sequence[tuple[str, pd.Series, float]] = (
        ("equal cells whose interval leaves out 1", pairs["different"], CHANCE),
        ("planted effects that lie outside their interval", ~effects["inside"].astype(bool), CHANCE),
        ("planted effects called what they are not", ~effects["right"].astype(bool), 0.0),
        ("planted bottlenecks that are not named", ~named["right"].astype(bool), MISNAMED),
    )
    return [
        say(what, f"≤ {100 * most:g} %" if most else "none", f"{seen.sum()} of {len(seen)}", seen.mean() <= most)
        for what, failed, most in failures
        if len(seen := failed.astype(bool))
    ]


def _predicted(found: pd.DataFrame, say: Say) -> list[Promise]:
    """Judge predictions by what was held out; a wait is judged in milliseconds, as it may be next to nothing."""
    promises = []
    for axis, part in found.groupby("held_out"):
        least = PREDICTED[str(axis)]
        target = f"{100 * least:g} % of them"
        rates, error = float(part["within"].mean()), part["error_pct"].abs()
        waits, missed = float(part["wait_within"].mean()), part["wait_error_ms"].abs()
        promises += [
            say(
                f"throughput of cells whose {axis} was held out, predicted within {prediction.RATE_WITHIN_PCT:g} %",
                target,
                f"{100 * rates:.0f} % (error: median {error.median():.1f} %, worst {error.max():.1f} %, "
                f"n = {len(part)})",
                rates >= least,
            ),
            say(
                f"their data wait, with {axis} held out, predicted within {prediction.WAIT_WITHIN_MS:g} ms a step or "
                f"{prediction.RATE_WITHIN_PCT:g} %",
                target,
                f"{100 * waits:.0f} % (error: median {missed.median():.2f} ms, worst {missed.max():.2f} ms, "
                f"n = {len(part)})",
                waits >= least,
            ),
        ]
    return promises
