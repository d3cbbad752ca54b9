"""Are planted costs read back, effects told apart, held-out cells predicted?

Equal cells and planted effects say how often intervals hold the truth on this machine. A calibration run takes longer
than a bench: it is a sweep of its own (``make sweep SUITE=calibration``), and the newest one's records are read here.
How often intervals, verdicts and choices of the best are right where the truth is known is simulated by tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from feedrate.analysis import prediction
from feedrate.analysis.estimates import rows_of
from feedrate.bench.session import Figure, Session
from feedrate.plan.suite import CALIBRATION
from feedrate.questions.calibration.analysis import bottlenecks, effects, planted, same_pairs, summary
from feedrate.store import runs

READ_BACK_PCT = 5.0
CHANCE = 0.15
"""Three of twenty: a perfect 5 % test gives more than one of twenty in a quarter of all runs."""
PREDICTED = {"num_workers": 1.0, "batch_size": 0.9}
"""Share of held-out cells that the model must predict within its limits."""
MISNAMED = 0.05
"""Share of planted bottlenecks that may be missed."""


def measure(session: Session) -> Iterator[Figure]:
    """Read the records of the newest calibration run; some seconds."""
    session.console.print("Calibration: reading the newest run of that suite ...")
    run = newest_calibration(runs.runs(session.results), session.machine_id)
    if run is None:
        missing = "no calibration run of this machine: make sweep SUITE=calibration"
        yield Figure("planted costs are read back", f"within {READ_BACK_PCT:g} %", missing, None)
        return
    trials, machine = run.table("trials"), run.manifest.machine
    cores = min(machine.cores_logical, machine.cpu_quota_cores or machine.cores_logical)
    for figure in (
        *read_back(summary(planted(trials))),
        *verdicts(effects(trials), same_pairs(trials), bottlenecks(trials)),
        *predicted(prediction.held_out(trials, run.table("steps"), cores)),
    ):
        yield figure._replace(measured=f"{figure.measured}; run {run.manifest.run_id}")


def newest_calibration(results: Sequence[runs.StoredRun], machine_id: str) -> runs.StoredRun | None:
    """The machine's newest run of the calibration suite, or None; ``results`` come oldest first."""
    own = (run for run in reversed(results) if run.manifest.machine.machine_id == machine_id)
    return next((run for run in own if CALIBRATION in run.manifest.suites), None)


def read_back(quantities: pd.DataFrame) -> list[Figure]:
    """Judge each planted quantity by its worst cell; rows of ``calibration.analysis.summary``."""
    return [
        Figure(
            f"planted {row['quantity']} is read back, worst cell",
            f"within {READ_BACK_PCT:g} %",
            f"{row['worst_pct']:+.1f} % (median size {row['median_pct']:.1f} %, {row['cells']} cells, n ≥ {row['n']})",
            abs(row["worst_pct"]) <= READ_BACK_PCT,
        )
        for row in rows_of(quantities)
    ]


def verdicts(effects: pd.DataFrame, pairs: pd.DataFrame, bottlenecks: pd.DataFrame) -> Iterator[Figure]:
    """Count what was called what it is not, among planted effects, pairs of equal cells and planted bottlenecks."""
    for what, failed, most in (
        ("equal cells whose interval leaves out 1", pairs["different"].astype(bool), CHANCE),
        ("planted effects that lie outside their interval", ~effects["inside"].astype(bool), CHANCE),
        ("planted effects called what they are not", ~effects["right"].astype(bool), 0.0),
        ("planted bottlenecks that are not named", ~bottlenecks["right"].astype(bool), MISNAMED),
    ):
        if len(failed):
            target = f"≤ {100 * most:g} %" if most else "none"
            yield Figure(what, target, f"{failed.sum()} of {len(failed)}", bool(failed.mean() <= most))


def predicted(cells: pd.DataFrame) -> Iterator[Figure]:
    """Judge predictions by what was held out; a wait is judged in milliseconds, as it may be next to nothing."""
    rate_pct, wait_ms = f"{prediction.RATE_WITHIN_PCT:g} %", f"{prediction.WAIT_WITHIN_MS:g} ms"
    rate = "throughput of cells whose {} was held out, predicted within " + rate_pct
    wait = "their data wait, with {} held out, predicted within " + f"{wait_ms} a step or {rate_pct}"
    for axis, held_out in cells.groupby("held_out"):
        least = PREDICTED[str(axis)]
        for what, within, error, digits, unit in (
            (rate, "within", "error_pct", 1, "%"),
            (wait, "wait_within", "wait_error_ms", 2, "ms"),
        ):
            share, errors = float(held_out[within].mean()), held_out[error].abs()
            spread = f"median {errors.median():.{digits}f} {unit}, worst {errors.max():.{digits}f} {unit}"
            measured = f"{100 * share:.0f} % (error: {spread}, n = {len(held_out)})"
            yield Figure(what.format(axis), f"{100 * least:g} % of them", measured, share >= least)
