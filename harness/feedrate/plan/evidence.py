"""What trials and the pipeline model show of settings: how long each takes, and how much faster another one can be.

Times are logs of the time that a sample takes; what a machine does meanwhile cancels in differences within a block.

- **Floors.** No pipeline is faster than its step, than its workers' preparing divided among them, than its computing
  divided among the cores (``Parts``). The trials of a setting say this best of those that take more of the machine than
  it does (``rooms``): what disturbs a trial disturbs its parts and the whole alike, and cancels.
- **The model.** The pipeline model says how settings compare. Its error is that of the settings that were measured
  (root mean square, at first ``MODEL_ERROR``; more, the farther from the fastest it predicts). Where what is said of
  some settings rests on trials of their own, what trials vary by is allowed for, in the floors too.
- **Confidence sequences.** Of two settings that were both measured, the mean difference is bounded by a mixture of
  t-tests that may be looked at after every block (Robbins 1970; Lai 1976; here with a normal prior of ``PRIOR`` times
  the spread on the true difference). The spread between trials is estimated from all settings, and for each two
  weighted with what they show themselves (Smyth 2004). Chances to err are shared among the settings that are measured.

Pure Python: the parent of a sweep loads neither pandas nor SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, pstdev
from typing import Generic, NamedTuple, TypeVar

Setting = TypeVar("Setting", bound=Hashable)

CHANCE = 0.05
"""Of stating a bound that does not hold."""
PRIOR = 2.0
BELIEF = 6
"""Degrees of freedom, at most, with which the spread of all settings counts for any two."""
MODEL_ERROR, MODEL_BELIEF, LEAST_ERROR = 0.03, 2, 0.005
"""What the model is off before settings tell, for how many of them that counts, and what it is off at least."""
SIGMAS = 2.0
"""So many standard deviations are what model and trials together may be off."""
SPREAD, SPREAD_BELIEF = 0.02, 2
"""Standard deviation of a log time between trials that is assumed before they tell, and for how many of them it counts.
"""
FAR = 0.1
"""A prediction that differs so much from the leader's (log) may err twice as much as one that does not."""
PARTS_ERROR, ROOM_SD = 0.01, 0.01
"""What the parts that make a floor may be off, and what trials of a setting differ by in what they leave to gain (log).
"""


class Parts(NamedTuple):
    """The least that the parts of a step took in some trials, in one unit of time."""

    step: float
    prepare: float
    """The preparing of a batch."""
    computed: float
    """The computing of a step, its batch's included, divided among the cores."""
    handed_over: float
    """The step, and the hand-over of a batch that a worker prepared."""

    def step_with(self, workers: int) -> float:
        """The least that a step takes with so many workers."""
        if not workers:
            return self.step + self.prepare
        return max(self.handed_over, self.prepare / workers, self.computed)


@dataclass(frozen=True, slots=True)
class Model(Generic[Setting]):
    """What is said of settings before they are measured; some may lack."""

    predicted: Mapping[Setting, float] = field(default_factory=dict)
    """Logs of times."""
    floors: Mapping[Setting, float] = field(default_factory=dict)
    """Logs of the least times."""
    bases: Mapping[Setting, int] = field(default_factory=dict)
    """On how many trials that rests, where it rests on other trials for other settings: then what trials vary by does
    not cancel in the difference of two."""
    rooms: Mapping[tuple[Setting, Setting], Sequence[float]] = field(default_factory=dict)
    """Two settings to the logs of how many times as fast the second one can be at most, by what each trial of the first
    one leaves to gain."""


class Spread(NamedTuple):
    """Standard deviation between trials of a setting within blocks, its degrees of freedom, and trials of a block."""

    sd: float
    freedom: int
    trials: int


class _Belief(NamedTuple):
    """A log time, and its standard deviation."""

    mean: float
    sd: float


class Evidence(Generic[Setting]):
    """What is known of settings at one moment."""

    def __init__(
        self,
        logs: Mapping[Setting, Mapping[int, float]],
        model: Model[Setting],
        trial_of: Callable[[Setting], Setting],
    ) -> None:
        """Take over what was measured: logs of settings that have run and never failed, cheapest first, by block."""
        self._logs, self._model, self._trial_of = logs, model, trial_of
        self._beliefs: dict[Setting, _Belief] = {}

    def leader(self, tied: float) -> Setting:
        """The cheapest setting that is as good as the one with the lowest believed time, as far as that matters."""
        modelled = bool(self._model.predicted)
        times = {setting: self._believed(setting).mean for setting in self._logs} if modelled else self.means
        return next(setting for setting in self._logs if times[setting] <= min(times.values()) + tied)

    def bound(self, setting: Setting, other: Setting) -> float:
        """Bound the log of how many times as fast as a measured setting another one is, by what bounds it lowest."""
        mine, theirs = self._believed(setting), self._believed(other)
        bounds = [mine.mean - theirs.mean + SIGMAS * math.hypot(mine.sd, theirs.sd), self.room(setting, other)]
        if pairs := self.differences(setting, other):
            same_trials = self._trial_of(setting) == self._trial_of(other)
            bounds.append(fmean(pairs) + (0.0 if same_trials else self._half(pairs)))
        return min(bounds)

    def room(self, setting: Setting, other: Setting) -> float:
        """How much the floor of another setting leaves to gain over a measured one."""
        mine = self._believed(setting)
        room = mine.mean + SIGMAS * mine.sd - self._floor(other)
        if logs := self._model.rooms.get((setting, other)):
            return min(room, fmean(logs) + PARTS_ERROR + SIGMAS * ROOM_SD / math.sqrt(len(logs)))
        return room

    def least(self, setting: Setting) -> float:
        """The least log time that a setting may take."""
        belief = self._believed(setting)
        return max(self._floor(setting), belief.mean - SIGMAS * belief.sd)

    def _floor(self, setting: Setting) -> float:
        return self._model.floors.get(setting, -math.inf) - SIGMAS * self._basis_error(setting)

    def _basis_error(self, setting: Setting) -> float:
        """What the trials vary by on which prediction and floor rest, what all of a block share included."""
        if not self._model.bases.get(setting):
            return 0.0
        return math.hypot(self.spread.sd, pstdev(self._fit[1].values())) / math.sqrt(self._model.bases[setting])

    def gap(self, setting: Setting, other: Setting) -> float:
        """Log of how many times as long a setting takes as another one, by the model."""
        return self._model.predicted.get(setting, 0.0) - self._model.predicted.get(other, 0.0)

    def _believed(self, setting: Setting) -> _Belief:
        """Combine what the model says of a setting with its trials, each as far as it can be trusted."""
        if setting in self._beliefs:
            return self._beliefs[setting]
        means, sources = self.means, []
        if setting in means:
            sources.append(_Belief(means[setting], self.spread.sd / math.sqrt(len(self._logs[setting]))))
        if setting in self._model.predicted and self._model_error is not None:
            level, error = self._model_error
            # Twice: the trials that a prediction rests on may be those of the setting itself.
            sd = math.hypot(error * self._scale(setting), 2 * self._basis_error(setting))
            sources.append(_Belief(level + self._model.predicted[setting], sd))
        belief = _Belief(0.0, math.inf)
        if sources:
            weight = sum(source.sd**-2 for source in sources)
            belief = _Belief(sum(source.mean * source.sd**-2 for source in sources) / weight, weight**-0.5)
        self._beliefs[setting] = belief
        return belief

    def _scale(self, setting: Setting) -> float:
        """How many times as much the model may be off here as near the measured setting that it finds fastest."""
        fastest = min(self._model.predicted[other] for other in self._logs if other in self._model.predicted)
        return 1 + abs(self._model.predicted[setting] - fastest) / FAR

    @cached_property
    def _model_error(self) -> tuple[float, float] | None:
        """What settings take over what the model says, and by how much that differs between them; None: no model."""
        means, spread = self.means, self.spread.sd
        modelled = [setting for setting in means if setting in self._model.predicted]
        if not modelled:
            return None
        weights = [self._scale(setting) ** -2 for setting in modelled]
        excess = [means[setting] - self._model.predicted[setting] for setting in modelled]
        level = sum(weight * value for weight, value in zip(weights, excess, strict=True)) / sum(weights)
        squares = MODEL_BELIEF * MODEL_ERROR**2
        for setting, weight, value in zip(modelled, weights, excess, strict=True):
            squares += weight * max(0.0, (value - level) ** 2 - spread**2 / len(self._logs[setting]))
        return level, max(LEAST_ERROR, math.sqrt(squares / (MODEL_BELIEF + len(modelled) - 1)))

    def differences(self, setting: Setting, other: Setting) -> list[float]:
        """Log times of a setting less those of another one in the same blocks."""
        mine, theirs = self._logs.get(setting, {}), self._logs.get(other, {})
        return [mine[block] - theirs[block] for block in mine.keys() & theirs.keys()]

    @cached_property
    def _fit(self) -> tuple[dict[Setting, float], dict[int, float]]:
        """A mean of every setting and an offset of every block (least squares, by turns)."""
        offsets = dict.fromkeys((block for logs in self._logs.values() for block in logs), 0.0)
        means: dict[Setting, float] = {}
        for _ in range(50):
            means = {
                setting: fmean(log - offsets[block] for block, log in logs.items())
                for setting, logs in self._logs.items()
            }
            before, offsets = offsets, {}
            for block in before:
                offsets[block] = fmean(
                    logs[block] - means[setting] for setting, logs in self._logs.items() if block in logs
                )
            middle = fmean(offsets.values())
            offsets = {block: offset - middle for block, offset in offsets.items()}
            if offsets == before:
                break
        return means, offsets

    @property
    def means(self) -> dict[Setting, float]:
        """The mean of every setting."""
        return self._fit[0]

    @cached_property
    def spread(self) -> Spread:
        """How much trials vary within blocks."""
        means, offsets = self._fit
        distinct = {self._trial_of(setting): setting for setting in means}.values()
        residuals = [
            log - means[setting] - offsets[block] for setting in distinct for block, log in self._logs[setting].items()
        ]
        freedom = max(0, len(residuals) - len(distinct) - len(offsets) + 1)
        squares = SPREAD_BELIEF * SPREAD**2 + sum(value * value for value in residuals)
        return Spread(math.sqrt(squares / (SPREAD_BELIEF + freedom)), freedom, len(distinct))

    def _half(self, pairs: Sequence[float]) -> float:
        """How far above the mean difference of pairs the true one may lie."""
        spread, freedom, trials = self.spread
        belief, n = min(freedom, BELIEF), len(pairs)
        if not belief:
            return math.inf
        middle = fmean(pairs)
        squares = sum((value - middle) ** 2 for value in pairs)
        freedom = belief + n - 1
        variance = (2 * belief * spread**2 + squares) / freedom
        inflated = 1 + n * PRIOR**2
        level = max(1, trials - 1) / (2 * CHANCE) * math.sqrt(inflated)
        factor = level ** (2 / (freedom + 1))
        if factor >= inflated:
            return math.inf
        return math.sqrt(freedom * (factor - 1) / (1 - factor / inflated) * variance / n)
