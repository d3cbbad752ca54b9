"""What ``feedrate tune`` promises, in searches whose truth is known: a bound that holds, a good setting, few trials.

The truth of a workload is never the search's model: cores are slower when both are busy, every worker costs something,
parameters are a few per cent off, and a ``Landscape`` says what else the model does not know: an effect of each
setting's own, a gain of one knob that no part shows, parts that get cheaper with prefetching, a floor that is wrong.
Trials vary as recorded ones did (log throughput less the means of the cell and of the block), in a session that drifts.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, islice
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pytest

from feedrate.analysis.pipeline import Pipeline, simulate
from feedrate.attach.space import Asked, Machine, Setting, settings
from feedrate.attach.trials import WINDOW_S, Trial, expected, lengthened, rooms
from feedrate.plan.evidence import ROOM_SD, Model
from feedrate.plan.search import GRID_BLOCKS, Search

SEARCHES = 2
"""Of each workload."""
WITHIN = math.log(1.03)
CORES = 2.0
MACHINE = Machine(CORES, None, None, epoch_steps=1000)
PRESENT = (Setting(0), Setting(2, 2))
EVERY = settings(PRESENT[-1], Asked(), MACHINE, cuda=False)
TRUTHS, MODELS = 2, 3
"""Variants of a workload: what its settings take, and what the model says of them."""
SLOWER, PER_WORKER = 0.12, 0.002
"""What computing takes more where all cores are busy, and a step for each worker."""
OFF = {"wait_ns": (0.0, 0.02), "compute_ns": (0.05, 0.02), "step_ns": (0.0, 0.01)}
"""Parameter to what the model is off about it: mean and standard deviation (log)."""
DRIFT, MOST_BLOCKS = 0.01, 24
"""From block to block (log sd); a search that has not ended by then is taken as it stands."""
QUIET, NOISY, SPREAD, NOISE_S = 0.02, 0.09, 0.5, 0.6
"""Sd of a window of so many seconds where nothing else runs and on shared cores; how settings differ in it (log sd)."""


class Landscape(NamedTuple):
    """What no model knows of a workload, as logs of times."""

    own: float = 0.004
    """What each setting takes for itself (sd)."""
    knob: float = 0.0
    """What prefetching 8 batches gains, which no part shows."""
    cheaper: float = 0.0
    """What parts take less for each doubling of what is prefetched."""
    floor: float = 0.0
    """How much faster than their floor settings with four workers or more are."""


USUAL = "settings differ by little"
LANDSCAPES = {
    USUAL: Landscape(),
    "settings alike": Landscape(own=0.0),
    "settings differ by 2 %": Landscape(own=0.02),
    "settings differ by 4 %": Landscape(own=0.04),
    "settings differ by 8 %": Landscape(own=0.08),
    "one knob gains": Landscape(knob=0.08),
    "parts get cheaper": Landscape(cheaper=0.05),
    "a floor is wrong": Landscape(floor=0.15),
}


def planted(wait_ms: float, compute_ms: float, step_ms: float, step_cores: float, tail: float = 0.0) -> Pipeline:
    """A workload whose batches differ by so much (log sd)."""
    ns = 1e6 * np.random.default_rng(0).lognormal(-(tail**2) / 2, tail, 256)
    return Pipeline(wait_ms * ns, compute_ms * ns, 1e5, 5e5, step_ms * 1e6, step_cores, CORES)


WORKLOADS = {
    "reads": planted(40, 1, 3, 0),
    "reads before a computing step": planted(30, 1, 10, 1),
    "decoding": planted(0, 20, 3, 0),
    "decoding before a computing step": planted(0, 10, 10, 1),
    "reads and decoding": planted(15, 8, 5, 0),
    "a computing step": planted(2, 2, 20, 1),
    "heavy-tailed reads": planted(40, 1, 8, 0, tail=1.0),
    "heavy-tailed decoding": planted(0, 10, 8, 0, tail=0.8),
    "all short": planted(1, 1, 2, 0),
    "loader and step in balance": planted(20, 2, 11, 0),
    "collating on a busy machine": planted(0, 30, 60, 1),
    "cheap samples": planted(0, 0.3, 1, 1),
}


class Case(NamedTuple):
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


class Searched(NamedTuple):
    """How a search ended."""

    trials: int
    share: float
    """Of a grid's trials."""
    settled: bool
    """Whether it says that no setting is better by more than the tolerance."""
    regret: float
    """Log of how many times as fast as the recommended setting the best of all truly is."""
    of_compared: float
    """The same, of the best of those that it was compared with."""
    bound: float
    """What was said of these."""


def searched(case: Case, noise_sd: float, seed: int) -> Searched:
    """Search once: trials come from the truth and the noise."""
    chance = random.Random(seed)
    sds = {window: noise_sd * chance.lognormvariate(0, SPREAD) for window in case.shown}
    every = [setting for shown in case.shown.values() for setting in shown]
    search = Search(
        every, within=WITHIN, seed=seed, present=case.present, trial_of=MACHINE.trial_of, knobs=Setting.knobs
    )
    gains = defaultdict[tuple[Setting, Setting], list[float]](list)
    trials, block, drift, window_s = 0, 0, 0.0, WINDOW_S[0]
    while block < MOST_BLOCKS and (order := search.next_block(block)):
        drift += chance.gauss(0, DRIFT)
        for window in order:
            noise = drift + chance.gauss(0, sds[window] * math.sqrt(NOISE_S / window_s))
            for setting in case.shown[window]:
                search.add(block, setting, case.truth[setting] + noise)
            trial = case.trials[window]
            wall_ns = trial.told["wall_ns"] * math.exp(chance.gauss(0, ROOM_SD))
            for pair, logs in rooms([replace(trial, told={**trial.told, "wall_ns": wall_ns})], every, MACHINE).items():
                gains[pair] += logs
        trials += len(order)
        search.expect(Model(*case.model, rooms=gains))
        block, window_s = block + 1, lengthened(window_s, search)
    outcome = search.outcome()
    compared = [other for other in search.measured if search._compared(outcome.recommended, other)]
    regret, of_compared = (
        case.truth[outcome.recommended] - min(case.truth[each] for each in (outcome.recommended, *those))
        for those in (every, compared)
    )
    share = trials / (len(every) * GRID_BLOCKS)
    return Searched(trials, share, outcome.settled, regret, of_compared, outcome.bound)


class Rival:
    """Another way to spend as many trials: they vary as those of a search do, five to a block."""

    def __init__(self, case: Case, noise_sd: float, seed: int) -> None:
        self.chance, self._case = random.Random(seed), case
        self._sds = {window: noise_sd * self.chance.lognormvariate(0, SPREAD) for window in case.shown}
        self._logs = defaultdict[Setting, list[float]](list)
        self._drift, self._trials = 0.0, 0

    def measure(self, window: Setting) -> None:
        """Take one trial."""
        self._drift += self.chance.gauss(0, DRIFT) if self._trials % 5 == 0 else 0.0
        self._trials += 1
        noise = self._drift + self.chance.gauss(0, self._sds[window])
        for setting in self._case.shown[window]:
            self._logs[setting].append(self._case.truth[setting] + noise)

    def mean(self, setting: Setting) -> float:
        return fmean(self._logs[setting])

    def regret(self, among: Iterable[Setting]) -> float:
        """Of the setting with the lowest mean."""
        return self._case.truth[min(among, key=self.mean)] - min(self._case.truth.values())


def random_search(case: Case, trials: int, noise_sd: float, seed: int) -> float:
    """Regret of the best of random settings, each measured before any is measured again."""
    rival = Rival(case, noise_sd, seed)
    windows = rival.chance.sample(list(case.shown), len(case.shown))
    for window in islice(cycle(windows), trials):
        rival.measure(window)
    return rival.regret(setting for window in windows[:trials] for setting in case.shown[window])


def successive_halving(case: Case, trials: int, noise_sd: float, seed: int) -> float:
    """Regret of the last of as many random settings as trials allow: the better half stays and has twice the trials."""
    rival, rounds = Rival(case, noise_sd, seed), lambda count: math.ceil(math.log2(count))
    count = max(n for n in range(2, len(case.shown) + 1) if n == 2 or n * rounds(n) <= trials)
    left = rival.chance.sample(list(case.shown), count)
    while len(left) > 1:
        for _ in range(max(1, trials // rounds(count) // len(left))):
            for window in rival.chance.sample(left, len(left)):
                rival.measure(window)
        left.sort(key=lambda window: min(map(rival.mean, case.shown[window])))
        left = left[: len(left) // 2]
    return rival.regret(case.shown[left[0]])


def cases(name: str, landscape: Landscape) -> Iterator[Case]:
    """Every variant of a workload."""
    shown: dict[Setting, list[Setting]] = {}
    for setting in EVERY:
        shown.setdefault(MACHINE.trial_of(setting), []).append(setting)
    for seed in range(TRUTHS):
        windows = {window: as_it_is(undisturbed(name, window, landscape.cheaper), landscape, seed) for window in shown}
        truth = {each: math.log(windows[MACHINE.trial_of(each)].step_ns(each, MACHINE.epoch_steps)) for each in EVERY}
        models = (expectation(name, seed) for seed in range(MODELS))
        yield from (Case(present, shown, truth, windows, model) for model in models for present in PRESENT)


@cache
def expectation(name: str, seed: int) -> tuple[Mapping[Setting, float], Mapping[Setting, float]]:
    """What a model expects of a workload's settings."""
    return expected([trial(Setting(2, 2), modelled(WORKLOADS[name], seed))], EVERY, MACHINE)


def modelled(pipeline: Pipeline, seed: int) -> Pipeline:
    """The workload as a model sees it."""
    random = np.random.default_rng(seed)
    off = {name: getattr(pipeline, name) * math.exp(random.normal(*error)) for name, error in OFF.items()}
    return replace(pipeline, **off)


def real(pipeline: Pipeline, setting: Setting) -> Pipeline:
    """The workload as it is with a setting: computing takes longer, the busier the cores are."""
    prepare, compute = (float(ns.mean()) for ns in (pipeline.wait_ns + pipeline.compute_ns, pipeline.compute_ns))
    workers = setting.num_workers
    pace = max(pipeline.step_ns, prepare / workers) if workers else pipeline.step_ns + prepare
    busy = min(1.0, (compute + pipeline.step_cores * pipeline.step_ns) / pace / CORES)
    return replace(pipeline, compute_ns=pipeline.compute_ns * (1 + SLOWER * busy))


def trial(setting: Setting, pipeline: Pipeline) -> Trial:
    """A trial without noise, as the model would have it."""
    pace = simulate(pipeline, setting.num_workers, setting.prefetch_factor or 2).step_ns
    told = {"wall_ns": pace, "steps": 1, "starts_ns": [2e7 + 1.2e7 * setting.num_workers]}
    told |= {"whole": False, "restart": False}
    return Trial(0, setting, told, fit=pipeline, preparing_ns=float((pipeline.wait_ns + pipeline.compute_ns).mean()))


@cache
def undisturbed(name: str, setting: Setting, cheaper: float) -> Trial:
    """A trial without noise of a workload whose parts get cheaper with prefetching."""
    pipeline = real(WORKLOADS[name], setting)
    factor = math.exp(-cheaper * math.log2((setting.prefetch_factor or 2) / 2))
    return trial(setting, replace(pipeline, wait_ns=factor * pipeline.wait_ns, compute_ns=factor * pipeline.compute_ns))


def as_it_is(found: Trial, landscape: Landscape, seed: int) -> Trial:
    """A trial with what no part of it shows."""
    setting = found.setting
    own = random.Random(f"{seed} {setting}").gauss(0, landscape.own)
    gained = landscape.knob * (setting.prefetch_factor == 8) + landscape.floor * (setting.num_workers >= 4)
    pace = found.told["wall_ns"] * (1 + PER_WORKER * setting.num_workers) * math.exp(own - gained)
    return replace(found, told={**found.told, "wall_ns": pace})


@cache
def campaign(name: str, noise_sd: float) -> list[tuple[Case, int, Searched]]:
    """Searches of every workload in a landscape, with their seeds."""
    variants = (zip(range(SEARCHES), cycle(cases(workload, LANDSCAPES[name]))) for workload in WORKLOADS)
    tried = [(case, seed) for of_one in variants for seed, case in of_one]
    return [(case, seed, searched(case, noise_sd, seed)) for case, seed in tried]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "noise_sd"), [*((name, QUIET) for name in LANDSCAPES), (USUAL, NOISY)])
def test_searches_keep_their_promises(name: str, noise_sd: float) -> None:
    """In 95 % the stated bound holds; in nine of ten no setting at all is better by more than 3 %, or that is said.

    On a quiet machine half take at most 12 % of a grid's trials, and 95 % end within 3 % of the best where settings
    differ by little. Where trials vary by 9 % half took 20 % (96 searches).
    """
    searches = [search for *_, search in campaign(name, noise_sd)]
    assert np.mean([search.of_compared <= max(search.bound, WITHIN) + 1e-9 for search in searches]) >= 0.95
    assert np.median([search.share for search in searches]) <= (0.12 if noise_sd == QUIET else 0.25)
    if (name, noise_sd) == (USUAL, QUIET):
        assert np.mean([search.regret <= WITHIN for search in searches]) >= 0.95
    # Nine of ten, as 24 searches show it.
    assert np.mean([search.regret <= WITHIN or not search.settled for search in searches]) >= 0.85


@pytest.mark.slow
@pytest.mark.parametrize("name", [USUAL, "settings differ by 4 %"])
def test_as_many_trials_find_less_without_a_model(name: str) -> None:
    """Random search and successive halving end within 3 % of the best less often."""
    searches = campaign(name, QUIET)
    good = sum(search.regret <= WITHIN for *_, search in searches)
    for rival in (random_search, successive_halving):
        regrets = [rival(case, search.trials, QUIET, seed) for case, seed, search in searches]
        assert sum(regret <= WITHIN for regret in regrets) < good
