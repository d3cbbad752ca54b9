"""What the statistics promise, simulated at the spreads that were measured: coverage, false alarms, power, time saved.

The spreads are those of the contrasts of the newest run under ``results``, of this machine if it has one: what noise is
like cannot be made up. Where there is no run, three spreads that were seen elsewhere stand in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness import store
from harness.analysis import simulate
from harness.analysis.calibration import effects
from harness.analysis.contrasts import contrasts
from harness.bench import calibration
from harness.bench.place import Place
from harness.bench_record import Promise
from harness.suite import CALIBRATION

SECTION = "statistics"
LEAST_BLOCKS = 5
"""A contrast of fewer says next to nothing about its spread."""
SPREADS = (0.03, 0.06, 0.085)
"""Of paired log ratios, on a two-core machine."""
COVERAGE = (0.93, 0.97)
FALSE_ALARMS = 1 - COVERAGE[0]
"""Two equal cells told apart by their 95 % interval; the verdict's margins make it fewer."""
TOO_SMALL, LARGE = 1.01, 1.05
"""True ratios: one that should not be confirmed, and one that should."""
SELDOM, MOSTLY = 0.10, 0.90
MISTAKEN = 0.05
"""Most pairs of equal cells that may be called different."""
SAVED = 0.60
"""Most of the wall clock of a fixed number of blocks that stopping may take."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Spreads to simulate with, and where they come from."""

    spreads: npt.NDArray[np.float64]
    """Standard deviations of paired log ratios."""
    origin: str
    run: store.StoredRun | None = None


def noise(results: Sequence[store.StoredRun], machine_id: str) -> Noise:
    """Take the spreads of the newest run that has contrasts, of the machine itself if there is one.

    Runs of planted costs alone are left out: they are calmer than what people ask about.

    Args:
        results: stored runs, oldest first.
        machine_id: the machine that is benched.
    """
    real = [run for run in reversed(results) if set(run.manifest.suites) != {CALIBRATION}]
    for run in sorted(real, key=lambda run: run.manifest.machine.machine_id != machine_id):
        found = contrasts(run.table("trials"))
        spreads = found[found["n"] >= LEAST_BLOCKS]["sd_log"].dropna().to_numpy(dtype=np.float64)
        if len(spreads):
            return Noise(spreads, f"spreads of {len(spreads)} contrasts of run {run.manifest.run_id}", run)
    return Noise(np.array(SPREADS), f"spreads of {', '.join(f'{100 * spread:g}' for spread in SPREADS)} %")


def measure(place: Place) -> list[Promise]:
    """Simulate; some seconds."""
    place.say("Statistics: simulating runs whose truth is known ...")
    results = store.runs(place.results)
    seen, planted = noise(results, place.machine_id), planted_noise(results, place.machine_id)
    return [_coverage(seen), *_alarms(), *_power(seen, planted), *_saved(seen)]


def _promise(what: str, target: str, measured: str, *, met: bool | None) -> Promise:
    return Promise(section=SECTION, what=what, target=target, measured=measured, met=met)


def _share(share: simulate.Share) -> str:
    low, high = share.interval
    return f"{100 * share.value:.1f} % ({100 * low:.1f}–{100 * high:.1f}, n = {share.n:,} simulated)"


def _coverage(seen: Noise) -> Promise:
    found = simulate.coverage(seen.spreads)
    return _promise(
        "95 % interval of a contrast holds the true ratio, early stopping included",
        f"{100 * COVERAGE[0]:g} to {100 * COVERAGE[1]:g} %",
        f"{_share(found)}; {seen.origin}",
        met=COVERAGE[0] <= found.value <= COVERAGE[1],
    )


def _alarms() -> list[Promise]:
    blocks, sequential = simulate.called_different(), simulate.called_different("sequential")
    drifting = "two equal cells on a machine that drifts by 5 %"
    return [
        _promise(
            f"{drifting}: their interval does not hold 1",
            f"≤ {100 * FALSE_ALARMS:g} %",
            f"{_share(blocks.by_interval)}; run one after the other {100 * sequential.by_interval.value:.0f} %",
            met=blocks.by_interval.value <= FALSE_ALARMS,
        ),
        _promise(
            f"{drifting}: the verdict says that they differ",
            f"≤ {100 * MISTAKEN:g} %",
            f"{_share(blocks.by_verdict)}; run one after the other {100 * sequential.by_verdict.value:.0f} %",
            met=blocks.by_verdict.value <= MISTAKEN,
        ),
    ]


def _power(seen: Noise, planted: Noise | None) -> list[Promise]:
    """Small effects at the spread of the planted ones and, as those are quiet cells, at that of all contrasts."""
    found = []
    for noise_ in filter(None, (planted, seen)):
        small, large = (simulate.confirmed(effect, noise_.spreads) for effect in (TOO_SMALL, LARGE))
        found += [
            _promise(
                "a claim whose true effect is 1 % is not confirmed",
                f"≥ {100 * (1 - SELDOM):g} %",
                f"{_share(simulate.Share(small.n - small.hits, small.n))}; {noise_.origin}",
                met=small.value <= SELDOM,
            ),
            _promise(
                "a claim whose true effect is 5 % is confirmed",
                f"≥ {100 * MOSTLY:g} %",
                f"{_share(large)}; {noise_.origin}",
                met=large.value >= MOSTLY,
            ),
        ]
    return found


def planted_noise(results: Sequence[store.StoredRun], machine_id: str) -> Noise | None:
    """Take the spreads of the planted effects of the machine's newest calibration run; None without one."""
    run = calibration.newest(results, machine_id)
    if run is None:
        return None
    trials = run.table("trials")
    pairs = contrasts(trials).merge(effects(trials)[["cell_a", "cell_b"]], on=["cell_a", "cell_b"])
    spreads = pairs["sd_log"].dropna().to_numpy(dtype=np.float64)
    if not len(spreads):
        return None
    return Noise(spreads, f"spreads of {len(spreads)} planted effects of run {run.manifest.run_id}", run)


def _saved(seen: Noise) -> list[Promise]:
    """What stopping saves on the recorded run, where there is one with blocks to draw from."""
    if seen.run is None or seen.run.manifest.blocks < 2:
        return []
    found = simulate.wall_to_target(seen.run.table("trials"))
    fixed = f"{found.fixed_blocks} blocks" if found.fixed_blocks else "more blocks than were tried"
    ratio = f"{found.ratio:.2f}" if found.fixed_blocks else "not known"
    return [
        _promise(
            "wall clock to ±3 % for the cells of a recorded run, stopping ÷ a fixed number of blocks",
            f"≤ {SAVED:g}",
            f"{ratio} ({found.adaptive_s / 60:.0f} min against {fixed} of all {found.cells} cells; "
            f"{found.recorded_blocks} recorded blocks, {found.replays} replays of run {seen.run.manifest.run_id})",
            met=found.ratio < 1 if found.fixed_blocks else None,
        )
    ]
