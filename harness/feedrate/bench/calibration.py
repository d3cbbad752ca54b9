"""Do intervals hold the truth on this machine? Planted costs are read back, and effects told apart.

A calibration run takes longer than a bench: it is a sweep of its own (``make sweep SUITE=calibration``), and the newest
one's records are read here. How often intervals, verdicts and choices of the best are right where the truth is known is
simulated by tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.bench.session import Figure, Session
from feedrate.plan.suite import CALIBRATION
from feedrate.questions.calibration.analysis import bottlenecks, effects, planted, same_pairs, summary
from feedrate.store import runs

READ_BACK_PCT = 5.0
CHANCE = 0.15
"""Three of twenty: a perfect 5 % test gives more than one of twenty in a quarter of all runs."""
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
    trials = run.table("trials")
    judged = verdicts(effects(trials), same_pairs(trials), bottlenecks(trials))
    for figure in (*read_back(summary(planted(trials))), *judged):
        yield figure._replace(measured=f"{figure.measured}; run {run.manifest.run_id}")


def newest_calibration(results: Sequence[runs.StoredRun], machine_id: str) -> runs.StoredRun | None:
    """The machine's newest run of the calibration suite, or None; ``results`` come oldest first."""
    here = (run for run in reversed(results) if run.manifest.machine.machine_id == machine_id)
    return next((run for run in here if CALIBRATION in run.manifest.suites), None)


def read_back(quantities: pd.DataFrame) -> Iterator[Figure]:
    """Judge each planted quantity by its worst cell; rows of ``calibration.analysis.summary``."""
    for row in rows_of(quantities):
        what, worst = f"planted {row['quantity']} is read back, worst setting", row["worst_pct"]
        measured = f"{worst:+.1f} % (median size {row['median_pct']:.1f} %, {row['cells']} settings, n ≥ {row['n']})"
        yield Figure(what, f"within {READ_BACK_PCT:g} %", measured, abs(worst) <= READ_BACK_PCT)


def verdicts(effects: pd.DataFrame, pairs: pd.DataFrame, bottlenecks: pd.DataFrame) -> Iterator[Figure]:
    """Count what was called what it is not, among planted effects, pairs of equal cells and planted bottlenecks."""
    for what, failed, most in (
        ("equal settings whose interval leaves out 1", pairs["different"].astype(bool), CHANCE),
        ("planted effects that lie outside their interval", ~effects["inside"].astype(bool), CHANCE),
        ("planted effects with a wrong verdict", ~effects["right"].astype(bool), 0.0),
        ("planted bottlenecks that are not named", ~bottlenecks["right"].astype(bool), MISNAMED),
    ):
        if len(failed):
            target = f"≤ {100 * most:g} %" if most else "none"
            yield Figure(what, target, f"{failed.sum()} of {len(failed)}", bool(failed.mean() <= most))
