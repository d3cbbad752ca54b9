"""How good is what ``feedrate tune`` recommends, where the truth is known? Searches among settings, simulated.

The truth of a workload is the pipeline model's, but for what the search's own model does not know: cores that are
slower when both are busy, a cost for every worker, an effect of each setting's own, and parameters that are a few per
cent off. Trials vary as recorded ones do: each setting draws the residuals of one cell of a run (log throughput less
the means of the cell and of the block), in a session that drifts from block to block. Recorded windows are shorter than
those of a search, which become longer where trials vary: a trial's noise is the mean of as many residuals as recorded
windows fit into its own.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from statistics import fmean
from typing import NamedTuple

import numpy as np

from feedrate.analysis.blocks import Blocks
from feedrate.analysis.pipeline import Pipeline, simulate
from feedrate.analysis.simulate import Share
from feedrate.attach.space import Asked, Machine, Setting, settings
from feedrate.attach.trials import WINDOW_S, Trial, expected, lengthened, rooms
from feedrate.bench.session import Figure
from feedrate.bench.statistics import LEAST_BLOCKS, Noise, simulated
from feedrate.machine import linux
from feedrate.machine.identity import usable_cores
from feedrate.plan.search import GRID_BLOCKS, ROOM_SD, Search
from feedrate.schema.words import percent

SEARCHES = 2000
WITHIN = math.log(1.03)
"""Tolerance of every search."""
OFTEN, TRIALS = 0.95, 0.12
"""Least share of the searches that must keep a promise, and most of the grid's trials that half of them may take."""
CORES = 2.0
MACHINE = Machine(CORES, None, None, epoch_steps=1000)
PRESENT = (Setting(0), Setting(2, 2))
TRUTHS, MODELS = 2, 3
"""Variants of a workload: what its settings take, and what the model says of them."""
SLOWER, PER_WORKER, OWN = 0.12, 0.002, 0.004
"""What computing takes more where all cores are busy, a step for each worker, and a setting for itself (log sd)."""
OFF = {"wait_ns": (0.0, 0.02), "compute_ns": (0.05, 0.02), "step_ns": (0.0, 0.01)}
"""Parameter to what the model is off about it: mean and standard deviation (log)."""
DRIFT = 0.01
"""From block to block (log sd)."""
MOST_BLOCKS = 24
"""A search that has not ended by then is taken as it stands."""
RECORDED_S = 0.6
"""Window of recorded trials."""
Residuals = Sequence[float]


def _workload(wait_ms: float, compute_ms: float, step_ms: float, step_cores: float, tail: float = 0.0) -> Pipeline:
    """A workload whose batches differ by so much (log sd)."""
    ns = 1e6 * np.random.default_rng(0).lognormal(-(tail**2) / 2, tail, 256)
    return Pipeline(wait_ms * ns, compute_ms * ns, 1e5, 5e5, step_ms * 1e6, step_cores, CORES)


WORKLOADS = {
    "reads": _workload(40, 1, 3, 0),
    "reads before a computing step": _workload(30, 1, 10, 1),
    "decoding": _workload(0, 20, 3, 0),
    "decoding before a computing step": _workload(0, 10, 10, 1),
    "reads and decoding": _workload(15, 8, 5, 0),
    "a computing step": _workload(2, 2, 20, 1),
    "a sleeping step": _workload(5, 3, 20, 0),
    "heavy-tailed reads": _workload(40, 1, 8, 0, tail=1.0),
    "heavy-tailed decoding": _workload(0, 10, 8, 0, tail=0.8),
    "all short": _workload(1, 1, 2, 0),
    "loader and step in balance": _workload(20, 2, 11, 0),
    "collating on a busy machine": _workload(0, 30, 60, 1),
    "heavy-tailed reads and decoding": _workload(20, 6, 10, 0.5, tail=0.6),
    "cheap samples": _workload(0, 0.3, 1, 1),
}


class Searched(NamedTuple):
    """How a search ended."""

    settings: int
    trials: int
    regret: float
    """Log of how many times as fast as the recommended setting the best one truly is."""
    bound: float
    """What was said of that."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload before a search."""

    present: Setting
    shown: Mapping[Setting, Sequence[Setting]]
    """Window to the settings whose times it shows."""
    truth: Mapping[Setting, float]
    """Setting to the log of the time that a step takes."""
    trials: Mapping[Setting, Trial]
    """Window to its trial without noise."""
    model: tuple[Mapping[Setting, float], Mapping[Setting, float]]
    """What is expected: logs of times, and of the least times."""


def measure(noise: Noise, searches: int = SEARCHES) -> list[Searched]:
    """Search so many times, spread over all workloads, on all cores.

    Args:
        noise: names the run whose residuals trials vary by; where there is none, normal ones have its spreads.
        searches: how many, at least.
    """
    pools = residuals(noise)
    each = -(-searches // len(WORKLOADS))
    workers = min(len(usable_cores()), len(WORKLOADS))
    with ProcessPoolExecutor(workers, get_context("spawn"), linux.die_with_parent, (os.getpid(),)) as pool:
        jobs = [pool.submit(searched, name, each, pools) for name in WORKLOADS]
        return [found for job in jobs for found in job.result()]


def residuals(noise: Noise) -> list[Residuals]:
    """Logs of times of a cell less the means of the cell and of the block, a pool a cell."""
    if noise.run is None:
        random = np.random.default_rng(0)
        return [list(random.normal(0, spread / math.sqrt(2), 64)) for spread in noise.spreads]
    trials = noise.run.table("trials")
    cells = trials["cell_id"].unique().tolist()
    logs = Blocks(trials).logs([noise.run.manifest.run_id] * len(cells), cells)
    logs = logs[np.isfinite(logs).sum(axis=1) >= LEAST_BLOCKS]
    logs = logs[:, np.isfinite(logs).any(axis=0)]
    for _ in range(20):  # blocks differ in which cells they hold
        left = logs - np.nanmean(logs, axis=1, keepdims=True)
        logs = logs - np.nanmean(left, axis=0)
    left = logs - np.nanmean(logs, axis=1, keepdims=True)
    return [(-row[np.isfinite(row)]).tolist() for row in left]


def searched(name: str, count: int, pools: Sequence[Residuals]) -> list[Searched]:
    """Search so many times among the settings of one workload."""
    cases = list(_cases(WORKLOADS[name]))
    return [search(cases[seed % len(cases)], pools, seed) for seed in range(count)]


def search(case: Case, pools: Sequence[Residuals], seed: int) -> Searched:
    """Search once: trials come from the truth and the noise."""
    chance = random.Random(seed)
    own = {window: chance.choice(pools) for window in case.shown}
    every = [setting for shown in case.shown.values() for setting in shown]
    finding = Search(every, within=WITHIN, seed=seed, present=case.present, trial_of=MACHINE.trial_of)
    tried, block, drift, window_s = list[Trial](), 0, 0.0, WINDOW_S[0]
    while block < MOST_BLOCKS and (order := finding.next_block(block)):
        drift, recorded = drift + chance.gauss(0, DRIFT), int(window_s / RECORDED_S)
        for window in order:
            noise = drift + fmean(chance.choices(own[window], k=recorded))
            for setting in case.shown[window]:
                finding.add(block, setting, case.truth[setting] + noise)
            tried.append(_shaken(case.trials[window], chance.gauss(0, ROOM_SD)))
        finding.expect(*case.model, rooms=rooms(tried, every, MACHINE))
        block, window_s = block + 1, lengthened(window_s, finding)
    outcome = finding.outcome()
    regret = case.truth[outcome.recommended] - min(case.truth.values())
    return Searched(len(every), len(tried), regret, outcome.bound)


def _cases(pipeline: Pipeline) -> Iterator[Case]:
    """Every variant of a workload."""
    every = settings(PRESENT[-1], Asked(), MACHINE, cuda=False)
    shown: dict[Setting, list[Setting]] = {}
    for setting in every:
        shown.setdefault(MACHINE.trial_of(setting), []).append(setting)
    models = [expected([_trial(Setting(2, 2), _off(pipeline, seed))], every, MACHINE) for seed in range(MODELS)]
    for seed in range(TRUTHS):
        windows = {window: _trial(window, _true(pipeline, window), seed) for window in shown}
        truth = {each: math.log(windows[MACHINE.trial_of(each)].step_ns(each, MACHINE.epoch_steps)) for each in every}
        yield from (Case(present, shown, truth, windows, model) for present in PRESENT for model in models)


def _off(pipeline: Pipeline, seed: int) -> Pipeline:
    """The workload as a model sees it."""
    random = np.random.default_rng(seed)
    return replace(
        pipeline, **{name: getattr(pipeline, name) * math.exp(random.normal(*error)) for name, error in OFF.items()}
    )


def _true(pipeline: Pipeline, setting: Setting) -> Pipeline:
    """The workload as it is with a setting: computing takes longer, the busier the cores are."""
    prepare, compute = (float(ns.mean()) for ns in (pipeline.wait_ns + pipeline.compute_ns, pipeline.compute_ns))
    workers = setting.num_workers
    pace = max(pipeline.step_ns, prepare / workers) if workers else pipeline.step_ns + prepare
    busy = min(1.0, (compute + pipeline.step_cores * pipeline.step_ns) / pace / CORES)
    return replace(pipeline, compute_ns=pipeline.compute_ns * (1 + SLOWER * busy))


def _trial(setting: Setting, pipeline: Pipeline, seed: int | None = None) -> Trial:
    """A trial without noise; with a seed it has what the model does not know."""
    pace = simulate(pipeline, setting.num_workers, setting.prefetch_factor or 2).step_ns
    if seed is not None:
        own = random.Random(f"{seed} {setting}").gauss(0, OWN)
        pace *= (1 + PER_WORKER * setting.num_workers) * math.exp(own)
    told = {"wall_ns": pace, "steps": 1, "starts_ns": [2e7 + 1.2e7 * setting.num_workers], "whole": False}
    return Trial(0, setting, told, fit=pipeline, preparing_ns=float((pipeline.wait_ns + pipeline.compute_ns).mean()))


def _shaken(trial: Trial, log: float) -> Trial:
    """A trial whose pace is off by so much beside what its parts took."""
    return replace(trial, told={**trial.told, "wall_ns": trial.told["wall_ns"] * math.exp(log)})


def judge(found: Sequence[Searched], origin: str) -> Iterator[Figure]:
    """Judge how often bounds hold, how often what is recommended is good, and how many trials half of them take."""
    n = len(found)
    for what, kept in (
        ("the bound that a search states holds", [each.regret <= each.bound + 1e-9 for each in found]),
        (f"a search recommends a setting within {100 * math.expm1(WITHIN):.0f} % of the best", _good(found)),
    ):
        share = Share(sum(kept), n)
        yield Figure(what, f"≥ {100 * OFTEN:g} % of them", f"{simulated(share)}; {origin}", share.value >= OFTEN)
    yield judge_trials("a simulated search", [each.trials / (each.settings * GRID_BLOCKS) for each in found])


def _good(found: Sequence[Searched]) -> list[bool]:
    return [each.regret <= WITHIN for each in found]


def judge_trials(who: str, shares: Sequence[float]) -> Figure:
    """Judge how many of a grid's trials half of the searches take at most."""
    middle, far = np.quantile(shares, [0.5, 0.9])
    measured = f"{percent(float(middle))} (in nine of ten at most {percent(float(far))}, n = {len(shares):,})"
    what = f"trials that {who} takes, of a grid's with {GRID_BLOCKS} blocks"
    return Figure(what, f"median ≤ {100 * TRIALS:g} %", measured, bool(middle <= TRIALS))
