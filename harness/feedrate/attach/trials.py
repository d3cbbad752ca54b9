"""Trials of a script's loader settings, and what they tell of those that have not run.

A trial's value is the time that a sample takes: that of its window, and the start of an epoch divided among its steps.
With workers that live on (``persistent_workers``) that start is the one that was seen when the loader started over.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from feedrate.analysis.pipeline import Pipeline, simulate
from feedrate.attach.records import Loader
from feedrate.attach.space import Machine, Setting
from feedrate.plan.evidence import PARTS_ERROR, Parts
from feedrate.plan.search import Search

WINDOW_S = (0.6, 2.4)
"""Least and longest window."""
PRECISE = 0.02
"""Standard error of a pace that a window should have."""
VARIED, SEEN = 0.015, 4
"""Windows become longer where the paces of trials vary by more (log), by so many degrees of freedom at least."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial that has ended."""

    block: int
    setting: Setting
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the hook said of it; nothing of one that died with its script."""
    error: str = ""
    fit: Pipeline | None = None
    """What the pipeline model takes from its window; None where that showed too little."""
    preparing_ns: float | None = None
    """Mean time that a batch took to prepare; None where that was not seen."""
    window: Window | None = None
    """What was recorded of it; None of one that failed."""
    ended_ns: int = 0
    """On the monotonic clock."""

    def step_ns(self, setting: Setting, epoch_steps: int) -> float:
        """Give the time that a step takes with its setting, or with one that has the same window.

        An epoch of 0 steps has no end.
        """
        pace = float(self.told["wall_ns"] / self.told["steps"])
        if self.told["whole"] or not epoch_steps:  # starts lie in the window, or there are none
            lived = self.told["whole"] and self.told["restart"] and not setting.persistent_workers
            more = self.start_ns(lasting=False) - self.start_ns(lasting=True) if lived else 0.0
            return pace + more * len(self.told["starts_ns"]) / int(self.told["steps"])
        return pace + self.start_ns(setting.persistent_workers) / epoch_steps

    def start_ns(self, lasting: bool) -> float:
        """Give what the start of an epoch took, with workers that live on or are started anew."""
        starts = self.told["starts_ns"]
        fresh, later = (starts[:1], starts[1:]) if self.told["restart"] else (starts, ())
        if lasting and later:
            return float(np.mean(later))
        start = float(np.mean(fresh))
        return start if self.preparing_ns is None or not lasting else min(start, self.preparing_ns)


class Window(NamedTuple):
    """What was recorded of a trial."""

    loader: Loader
    steps: pd.DataFrame
    """Its steps (``loop.whole_steps``)."""


def first_window_s(pilot: Trial) -> float:
    """Give how long a window must be for a pace as precise as wanted, by how much the first trial's batches differ."""
    if pilot.fit is None:
        return WINDOW_S[1]
    pace = float(pilot.told["wall_ns"] / pilot.told["steps"])
    took = pilot.fit.wait_ns + pilot.fit.compute_ns
    varied = float(took.std()) / max(1, pilot.setting.num_workers) / pace
    return float(np.clip((varied / PRECISE) ** 2 * pace / 1e9, *WINDOW_S))


def lengthened(window_s: float, search: Search[Setting]) -> float:
    """Make windows longer where trials vary."""
    spread = search.evidence.spread
    return min(2 * window_s, WINDOW_S[1]) if spread.freedom >= SEEN and spread.sd > VARIED else window_s


def expected(
    trials: Sequence[Trial], settings: Sequence[Setting], machine: Machine
) -> tuple[dict[Setting, float], dict[Setting, float]]:
    """Give logs of the time that a sample takes, by the pipeline model, and of the least that it can take.

    Left out are settings with a batch size, a start method, pinning or copying that has not run.
    """
    predicted, floors = {}, {}
    groups: dict[Setting, list[tuple[Trial, Pipeline]]] = {}
    for trial in trials:
        if trial.fit is not None:
            groups.setdefault(trial.setting.unmodelled, []).append((trial, trial.fit))
    for unmodelled, group in groups.items():
        least = _least([fit for _, fit in group], machine.cores)
        with_workers = [pair for pair in group if pair[0].setting.num_workers] or group
        basis, fit = min(with_workers, key=lambda pair: pair[0].told["wall_ns"] / pair[0].told["steps"])
        paced = lru_cache(None)(partial(simulate, fit))
        for setting in settings:
            if setting.unmodelled == unmodelled:
                lost, samples = 0.0, setting.batch_size or 1
                if machine.epoch_steps and setting.num_workers and not setting.persistent_workers:
                    lost = basis.start_ns(lasting=False) / machine.epoch_steps
                pace = paced(setting.num_workers, setting.prefetch_factor or 2).step_ns
                predicted[setting] = math.log((pace + lost) / samples)
                floors[setting] = math.log(least.step_with(setting.num_workers) / samples) - PARTS_ERROR
    return predicted, floors


def rooms(
    trials: Sequence[Trial], settings: Sequence[Setting], machine: Machine
) -> dict[tuple[Setting, Setting], list[float]]:
    """Give how many times as fast (log) a setting can be at most as one that ran, by what each of its trials took.

    Both the trial's pace and what its parts took count, so that what disturbed it does not. Said of settings alone
    that take more of the machine: their parts take no less. Settings come cheapest first.
    """
    gains: defaultdict[tuple[Setting, Setting], list[float]] = defaultdict(list)
    for trial in trials:
        if trial.fit is None or not trial.setting.num_workers:
            continue
        least = _least([trial.fit], machine.cores)
        if cpu_ns := trial.told.get("cpu_ns"):  # with what handing over computes in workers
            least = least._replace(computed=max(least.computed, cpu_ns / trial.told["steps"] / machine.cores))
        for index, setting in enumerate(settings):
            if machine.trial_of(setting) == trial.setting:
                pace = trial.step_ns(setting, machine.epoch_steps)
                for other in settings[index + 1 :]:
                    if other.unmodelled == setting.unmodelled:
                        gains[setting, other].append(math.log(pace / least.step_with(other.num_workers)))
    return gains


def _least(fits: Sequence[Pipeline], cores: float) -> Parts:
    """Give the least that each part took in any trial, in ns."""
    step, receive = (min(getattr(fit, name) for fit in fits) for name in ("step_ns", "receive_compute_ns"))
    compute = min(float(fit.compute_ns.mean()) + fit.step_cores * fit.step_ns for fit in fits)
    return Parts(
        step,
        min(float((fit.wait_ns + fit.compute_ns).mean()) for fit in fits),
        (compute + receive) / cores,
        step + receive + min(fit.receive_wait_ns for fit in fits),
    )
