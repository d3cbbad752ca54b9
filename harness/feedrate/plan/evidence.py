"""What trials and the pipeline model show of settings: how long each takes, and how much faster another one can be.

Times are logs of the time that a sample takes; what a machine does meanwhile cancels in differences within a block.

- **Confidence.** Of two settings that were both measured, the mean difference is bounded by a mixture of t-tests that
  may be looked at after every block (Robbins 1970; Lai 1976; here with a normal prior of ``PRIOR`` times the spread on
  the true difference). The spread between trials is estimated from all settings, and for each two weighted with what
  they show themselves (Smyth 2004). Chances to err are shared among the settings that are measured. This bound alone
  has a confidence; the other two are reasons not to measure a setting, or not to measure it again.
- **The model.** The pipeline model says how settings compare. Its error is learnt from settings that it had not seen:
  what it said of each before that was measured is held against the first trials (``Unseen``). ``MODEL_ERROR`` is what
  it was off on average on cells of committed runs that were held out; more, the farther from the fastest it predicts.
- **Floors.** No pipeline is faster than its step, than its workers' preparing divided among them, than its computing
  divided among the cores (``Parts``). The trials of a setting say this best of those that take more of the machine than
  it does (``rooms``): what disturbs a trial disturbs its parts and the whole alike, and cancels. A setting that was
  faster than its floor allowed widens all floors by as much.

Pure Python: the parent of a sweep loads no pandas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import mul
from statistics import fmean, pstdev
from typing import Generic, NamedTuple, TypeVar

Setting = TypeVar("Setting", bound=Hashable)

CHANCE = 0.05
"""Of stating a bound that does not hold."""
PRIOR = 2.0
BELIEF = 6
"""Degrees of freedom, at most, with which the spread of all settings counts for any two."""
MODEL_ERROR, MODEL_BELIEF = 0.07, 2
"""What the model is off (log sd of 137 held-out cells) before settings tell; for how many of them it counts."""
SIGMAS, SEEN_SIGMAS = 2.5, 2.0
"""So many standard deviations are what model and trials together may be off: of a setting that has not run, and of one
that has, whose own trials would tell."""
SPREAD, SPREAD_BELIEF = 0.02, 2
"""Standard deviation of a log time between trials that is assumed before they tell, and for how many of them it counts.
"""
FAR = 1.0
"""A prediction that differs so much from the fastest (log) may err twice as much as one that does not."""
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


@dataclass(frozen=True, slots=True)
class Unseen(Generic[Setting]):
    """What was said of a setting before it was measured, against one that had been: logs of times."""

    setting: Setting
    reference: Setting
    predicted: float
    """Its time less the reference's, by the model; NaN where that said nothing."""
    least: float
    """The least that this difference may be, by the floors."""
    aside: bool
    """Whether it had been set aside."""


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
        unseen: Sequence[Unseen[Setting]] = (),
    ) -> None:
        """Take over what was measured: logs of settings that have run and never failed, cheapest first, by block."""
        self._logs, self._model, self._trial_of = logs, model, trial_of
        self.unseen = [one for one in unseen if one.setting in logs and one.reference in logs]
        """What was said of settings before they were measured."""
        self._beliefs: dict[Setting, _Belief] = {}

    def leader(self, tied: float) -> Setting:
        """The cheapest setting that is as good as the one with the lowest believed time, as far as that matters."""
        modelled = bool(self._model.predicted)
        times = {setting: self._believed(setting).mean for setting in self._logs} if modelled else self.means
        return next(setting for setting in self._logs if times[setting] <= min(times.values()) + tied)

    def bound(self, setting: Setting, other: Setting) -> float:
        """How much faster than a measured setting another one may be, as far as anything is known of both (log)."""
        return min(self.measured(setting, other), self.room(setting, other), self.modelled(setting, other))

    def measured(self, setting: Setting, other: Setting) -> float:
        """How much faster another one is at most, with confidence: by their common blocks, and nothing else."""
        pairs = self.differences(setting, other)
        if not pairs:
            return math.inf
        same_trials = self._trial_of(setting) == self._trial_of(other)
        return fmean(pairs) + (0.0 if same_trials else self._half(pairs))

    def modelled(self, setting: Setting, other: Setting) -> float:
        """How much faster another one may be by the model and by the trials of both."""
        mine, theirs = self._believed(setting), self._believed(other)
        sigmas = SEEN_SIGMAS if other in self._logs else SIGMAS
        return mine.mean - theirs.mean + sigmas * math.hypot(mine.sd, theirs.sd)

    def room(self, setting: Setting, other: Setting) -> float:
        """How much the floor of another setting leaves to gain over a measured one; one that has run needs no floor."""
        if other in self._logs:
            return math.inf
        mine = self._believed(setting)
        room = mine.mean + SIGMAS * mine.sd - self._floor(other)
        if logs := self._model.rooms.get((setting, other)):
            room = min(room, fmean(logs) + PARTS_ERROR + SIGMAS * ROOM_SD / math.sqrt(len(logs)))
        return room + self._under_floor

    def least(self, setting: Setting) -> float:
        """The least log time that a setting may take."""
        belief = self._believed(setting)
        return max(self._floor(setting), belief.mean - SIGMAS * belief.sd)

    def foreseen(self, setting: Setting, reference: Setting, aside: bool) -> Unseen[Setting]:
        """Note what is said of a setting that was not measured, against one that was."""
        predicted, of_reference = (self._model.predicted.get(one, math.nan) for one in (setting, reference))
        return Unseen(setting, reference, predicted - of_reference, -self.room(reference, setting), aside)

    def surprise(self, unseen: Unseen[Setting]) -> float:
        """How much longer a setting took than the model had said (log); NaN where that had said nothing."""
        return self.means[unseen.setting] - self.means[unseen.reference] - unseen.predicted

    @cached_property
    def model_error(self) -> float:
        """What the model is off about settings that it had not seen (log sd), what trials vary by taken out."""
        squares, count = MODEL_BELIEF * MODEL_ERROR**2, MODEL_BELIEF
        for unseen in self.unseen:
            if not math.isnan(off := self.surprise(unseen)):
                scale = 1 + abs(unseen.predicted) / FAR
                squares, count = squares + max(0.0, off**2 - self._noise(unseen) ** 2) / scale**2, count + 1
        return math.sqrt(squares / count)

    @cached_property
    def _under_floor(self) -> float:
        """How much faster a setting was than its floor had allowed, beyond what trials vary by; the worst counts."""
        under = (
            unseen.least - (self.means[unseen.setting] - self.means[unseen.reference]) - SIGMAS * self._noise(unseen)
            for unseen in self.unseen
        )
        return max([0.0, *under])

    def _noise(self, unseen: Unseen[Setting]) -> float:
        """What the measured difference to the reference varies by (sd)."""
        counts = (len(self._logs[one]) for one in (unseen.setting, unseen.reference))
        return self.spread.sd * math.sqrt(sum(1 / count for count in counts))

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
        if setting in self._model.predicted and self._level is not None:
            # Twice: the trials that a prediction rests on may be those of the setting itself.
            sd = math.hypot(self.model_error * self._scale(setting), 2 * self._basis_error(setting))
            sources.append(_Belief(self._level + self._model.predicted[setting], sd))
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
    def _level(self) -> float | None:
        """What measured settings take over what the model says of them; None: it says nothing of any."""
        modelled = [setting for setting in self.means if setting in self._model.predicted]
        weights = [self._scale(setting) ** -2 for setting in modelled]
        excess = [self.means[setting] - self._model.predicted[setting] for setting in modelled]
        return sum(map(mul, weights, excess)) / sum(weights) if modelled else None

    def differences(self, setting: Setting, other: Setting) -> list[float]:
        """Log times of a setting less those of another one in the same blocks."""
        mine, theirs = self._logs.get(setting, {}), self._logs.get(other, {})
        return [mine[block] - theirs[block] for block in mine.keys() & theirs.keys()]

    @cached_property
    def _fit(self) -> tuple[dict[Setting, float], dict[int, float]]:
        """A mean of every setting and an offset of every block (least squares, by turns)."""
        by_block: dict[int, list[Setting]] = {}
        for setting, logs in self._logs.items():
            for block in logs:
                by_block.setdefault(block, []).append(setting)
        offsets, means = dict.fromkeys(by_block, 0.0), dict[Setting, float]()
        for _ in range(50):
            for setting, logs in self._logs.items():
                means[setting] = sum(log - offsets[block] for block, log in logs.items()) / len(logs)
            before, offsets = offsets, {}
            for block, settings in by_block.items():
                offsets[block] = sum(self._logs[one][block] - means[one] for one in settings) / len(settings)
            middle = sum(offsets.values()) / len(offsets)
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
