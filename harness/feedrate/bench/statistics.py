"""What the statistics promise: simulated where the truth is known, and judged where it was planted.

Simulated are coverage, false alarms, power, wrong verdicts and time saved, at the spreads of the contrasts of the
newest run, of this machine if it has one: what noise is like cannot be made up. Where there is no run, three spreads
that were seen elsewhere stand in. Wrong verdicts are simulated under noise that is not normal, too. How often intervals
hold the truth under it is told without a target, as no rule makes up for blocks that depend on one another.

Planted costs were measured by the machine's newest calibration run: are they read back, effects told apart, held-out
cells predicted? Such a run takes longer than a bench: it is a sweep of its own (``make sweep SUITE=calibration``), and
its records are read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis import prediction, simulate, simulate_noise
from feedrate.analysis.contrasts import contrasts
from feedrate.analysis.estimates import rows_of
from feedrate.bench.session import Figure, Session
from feedrate.plan.suite import CALIBRATION
from feedrate.questions.calibration.analysis import bottlenecks, effects, planted, same_pairs, summary
from feedrate.store import runs

LEAST_BLOCKS = 5
"""A contrast of fewer says next to nothing about its spread."""
COVERAGE = (0.93, 0.97)
FALSE_ALARMS = 1 - COVERAGE[0]
"""Two equal cells told apart by their 95 % interval; the verdict's margins make it fewer."""
TOO_SMALL, LARGE = 1.01, 1.05
"""True ratios: one that should not be confirmed, and one that should."""
SELDOM, MOSTLY = 0.10, 0.90
MISTAKEN = 0.05
"""Most pairs of equal cells that may be called different, and runs with any wrong verdict."""
NULLS = 0.80
"""Least true nulls that must be called no difference."""
GAINS = 0.93
_CHOICES = ((5, 0.02, 5), (20, 0.0, 8), (60, 0.02, 20))
"""Settings to choose from, the spread of their truths, and blocks: few of each, equal settings, many of each."""
SAVED = 0.60
"""Most of the wall clock of a fixed number of blocks that stopping may take."""
READ_BACK_PCT = 5.0
CHANCE = 0.15
"""Three of twenty: a perfect 5 % test gives more than one of twenty in a quarter of all runs."""
PREDICTED = {"num_workers": 1.0, "batch_size": 0.9}
"""Share of held-out cells that the model must predict within its limits."""
MISNAMED = 0.05
"""Share of planted bottlenecks that may be missed."""


class Noise(NamedTuple):
    """Spreads to simulate with, and where they come from."""

    spreads: npt.NDArray[np.float64]
    """Standard deviations of paired log ratios."""
    origin: str
    run: runs.StoredRun | None = None


def measure(session: Session) -> Iterator[Figure]:
    """Simulate; half a minute."""
    session.console.print("Statistics: simulating runs whose truth is known ...")
    results = runs.runs(session.results)
    recorded, quiet = noise(results, session.machine_id), planted_noise(results, session.machine_id)
    covered = simulate.coverage(recorded.spreads)
    yield Figure(
        "95 % interval of a contrast holds the true ratio, early stopping included",
        f"{100 * COVERAGE[0]:g} to {100 * COVERAGE[1]:g} %",
        f"{simulated(covered)}; {recorded.origin}",
        COVERAGE[0] <= covered.value <= COVERAGE[1],
    )
    blocks, sequential = simulate.called_different(), simulate.called_different("sequential")
    for what, share, other, most in (
        ("their interval does not hold 1", blocks.by_interval, sequential.by_interval, FALSE_ALARMS),
        ("the verdict says that they differ", blocks.by_verdict, sequential.by_verdict, MISTAKEN),
    ):
        measured = f"{simulated(share)}; run one after the other {100 * other.value:.0f} %"
        drifting = f"two equal cells on a machine that drifts by 5 %: {what}"
        yield Figure(drifting, f"≤ {100 * most:g} %", measured, share.value <= most)
    # Planted effects are those of quiet cells, so small effects are judged at the spread of all contrasts, too.
    for each in filter(None, (quiet, recorded)):
        small, large = (simulate.confirmation_rate(effect, each.spreads) for effect in (TOO_SMALL, LARGE))
        unconfirmed = simulate.Share(small.n - small.hits, small.n)
        for what, least, share, met in (
            ("a claim whose true effect is 1 % is not confirmed", 1 - SELDOM, unconfirmed, small.value <= SELDOM),
            ("a claim whose true effect is 5 % is confirmed", MOSTLY, large, large.value >= MOSTLY),
        ):
            yield Figure(what, f"≥ {100 * least:g} %", f"{simulated(share)}; {each.origin}", met)
    yield from under_noise(recorded)
    if recorded.run and recorded.run.manifest.blocks > 1:
        yield _saved(recorded.run)


def under_noise(recorded: Noise) -> Iterator[Figure]:
    """How often verdicts are wrong under each kind of noise, nulls are told, and gains of the best are right."""
    for name, kind in simulate_noise.NOISES.items():
        found = simulate_noise.worth(kind, recorded.spreads)
        yield Figure(
            f"a run of {len(simulate_noise.TRUTH)} claims has any wrong verdict, or is withheld; noise: {name}",
            f"≤ {100 * MISTAKEN:g} %",
            f"{simulated(found.wrong_left)}; {100 * found.withheld.value:.1f} % are withheld; 95 % intervals of "
            f"contrasts hold the truth in {100 * found.covered.value:.1f} %; {recorded.origin}",
            found.wrong_left.value <= MISTAKEN,
        )
    told = simulate_noise.nulls_told()
    what = "two equal settings among 26 that differ are told to be no different, after 30 blocks at a spread of 4 %"
    yield Figure(what, f"≥ {100 * NULLS:g} %", simulated(told), told.value >= NULLS)
    worst = min((simulate_noise.gain_covered(*choice) for choice in _CHOICES), key=lambda share: share.value)
    bias = f"{100 * simulate_noise.naive_bias():.1f} %"
    naive = f"measured where it was chosen, the best of 20 equal ones seems to gain {bias}"
    what = "the interval of what the best setting gains holds the truth, settings equal or not"
    yield Figure(what, f"≥ {100 * GAINS:g} %", f"{simulated(worst)}; {naive}", worst.value >= GAINS)


def noise(results: Sequence[runs.StoredRun], machine_id: str) -> Noise:
    """Take the spreads of the newest run that has contrasts, of the machine itself if there is one.

    Runs of planted costs alone are left out: they are calmer than what people ask about.
    """
    real = [run for run in reversed(results) if set(run.manifest.suites) != {CALIBRATION}]
    for run in sorted(real, key=lambda run: run.manifest.machine.machine_id != machine_id):
        pairs = contrasts(run.table("trials"))
        spreads = pairs[pairs["n"] >= LEAST_BLOCKS]["sd_log"].dropna().to_numpy(dtype=np.float64)
        if len(spreads):
            return Noise(spreads, f"spreads of {len(spreads)} contrasts of run {run.manifest.run_id}", run)
    spreads = np.array(simulate_noise.SPREADS)
    return Noise(spreads, f"spreads of {', '.join(f'{100 * spread:g}' for spread in spreads)} %")


def planted_noise(results: Sequence[runs.StoredRun], machine_id: str) -> Noise | None:
    """Take the spreads of the planted effects of the machine's newest calibration run; None without one."""
    if (run := newest_calibration(results, machine_id)) is None:
        return None
    trials = run.table("trials")
    pairs = contrasts(trials).merge(effects(trials)[["cell_a", "cell_b"]], on=["cell_a", "cell_b"])
    spreads = pairs["sd_log"].dropna().to_numpy(dtype=np.float64)
    origin = f"spreads of {len(spreads)} planted effects of run {run.manifest.run_id}"
    return Noise(spreads, origin, run) if len(spreads) else None


def simulated(share: simulate.Share) -> str:
    """Say a share of simulated cases, with its interval."""
    low, high = share.interval
    return f"{100 * share.value:.1f} % ({100 * low:.1f}–{100 * high:.1f}, n = {share.n:,} simulated)"


def _saved(run: runs.StoredRun) -> Figure:
    """What stopping early saves on a recorded run."""
    wall = simulate.wall_to_target(run.table("trials"))
    fixed = f"{wall.fixed_blocks} blocks" if wall.fixed_blocks else "more blocks than were tried"
    ratio = f"{wall.ratio:.2f}" if wall.fixed_blocks else "not known"
    return Figure(
        "wall clock to ±3 % for the cells of a recorded run, stopping ÷ a fixed number of blocks",
        f"≤ {SAVED:g}",
        f"{ratio} ({wall.adaptive_s / 60:.0f} min against {fixed} of all {wall.cells} cells; "
        f"{wall.recorded_blocks} recorded blocks, {wall.replays} replays of run {run.manifest.run_id})",
        wall.ratio < 1 if wall.fixed_blocks else None,
    )


def newest_calibration(results: Sequence[runs.StoredRun], machine_id: str) -> runs.StoredRun | None:
    """The machine's newest run of the calibration suite, or None; ``results`` come oldest first."""
    own = (run for run in reversed(results) if run.manifest.machine.machine_id == machine_id)
    return next((run for run in own if CALIBRATION in run.manifest.suites), None)


def measure_calibration(session: Session) -> Iterator[Figure]:
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
    for axis, part in cells.groupby("held_out"):
        least = PREDICTED[str(axis)]
        for what, within, error, digits, unit in (
            (rate, "within", "error_pct", 1, "%"),
            (wait, "wait_within", "wait_error_ms", 2, "ms"),
        ):
            share, errors = float(part[within].mean()), part[error].abs()
            spread = f"median {errors.median():.{digits}f} {unit}, worst {errors.max():.{digits}f} {unit}"
            measured = f"{100 * share:.0f} % (error: {spread}, n = {len(part)})"
            yield Figure(what.format(axis), f"{100 * least:g} % of them", measured, share >= least)
