"""Search for the best of many settings: which to measure next, and how far from the best the recommended one can be.

Settings are measured in blocks, each setting once a block, so that what a machine does meanwhile cancels in the
differences of two (logs of the time that a sample takes). A block holds the leader, whose mean is the lowest, and a few
settings that might still be better by more than ``within``, the most promising first:

- **Floors.** No pipeline is faster than its step, than its workers' preparing divided among them, than its computing
  divided among the cores (``Parts``): a setting whose floor is too near to the leader's time is set aside unmeasured.
  The leader's own trials say this best, of settings that take more of the machine than it does: what disturbs a trial
  disturbs its parts and the whole alike, and cancels.
- **The model.** The pipeline model says how settings compare. Its error is that of the settings that were measured
  (root mean square, at first ``MODEL_ERROR``; more, the farther from the leader it predicts). A setting that beats the
  leader by less than ``within``, should the model err by ``SIGMAS`` times that in its favour, is set aside.
  ``AUDITS`` of those set aside are measured all the same, and count towards the error. Where what is said of some
  settings rests on trials of their own, what trials vary by is allowed for, in the floors too.
- **Confidence sequences.** Of two settings that were both measured, the mean difference is bounded by a mixture of
  t-tests that may be looked at after every block (Robbins 1970; Lai 1976; here with a normal prior of ``PRIOR`` times
  the spread on the true difference). The spread between trials is estimated from all settings, and for each two
  weighted with what they show themselves (Smyth 2004). Chances to err are shared among the settings that are measured.

The search ends when the bound is within the tolerance. The recommended setting is the cheapest for which it is.

Settings are cells of a matrix (``plan.tuning``) or arguments of a script's DataLoader (``feedrate tune``). Their source
runs the trials of ``next_block``, adds what they took (``add``) and what they show of other settings (``expect``).

Pure Python: the parent of a sweep loads neither pandas nor SciPy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
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
TIED = 1 / 3
"""Of the tolerance: settings that differ by less are equal, and the cheaper one leads."""
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
AUDITS = 2
FIRST, WIDTH, OPEN_ONES = 5, 2, 2
"""Settings of the first block where none is the present one; those that enter a later one, and of those that ran and
may still be better than the leader."""
FEWEST = 2
"""Blocks of the recommended setting."""
BY_FLOOR = "their step, their workers' preparing or the cores leave too little to gain"
BY_MODEL = "by the pipeline model they gain too little, its own error allowed for"
OPEN = "not measured yet"
GRID_BLOCKS = 8
"""Blocks of the grid that a search is held against."""
CONFIRMED = 4
"""Blocks in which the present and the recommended setting ran, for an interval of the gain."""


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


class Outcome(NamedTuple, Generic[Setting]):
    """Where a search stands."""

    recommended: Setting
    bound: float
    """The log of how many times the best setting's pace can be the recommended one's; the tolerance at least,
    as that is what a search stops by."""
    settled: bool
    """Whether that is within the tolerance."""


class Audit(NamedTuple, Generic[Setting]):
    """A setting that was set aside and measured all the same: logs of its time over the leader's."""

    setting: Setting
    predicted: float
    measured: float


class Spread(NamedTuple):
    """Standard deviation between trials of a setting within blocks, its degrees of freedom, and trials of a block."""

    sd: float
    freedom: int
    trials: int


class _Belief(NamedTuple):
    """A log time, and its standard deviation."""

    mean: float
    sd: float


class Search(Generic[Setting]):
    """A search among settings."""

    def __init__(
        self,
        settings: Sequence[Setting],
        *,
        within: float,
        seed: int,
        present: Setting | None = None,
        trial_of: Callable[[Setting], Setting] = lambda setting: setting,
    ) -> None:
        """Begin.

        Args:
            settings: cheapest first: of those within reach of the best the first is recommended.
            within: tolerance, the log of how many times as fast the best one may be.
            seed: orders blocks and draws audits.
            present: the setting that the gain is measured against.
            trial_of: the setting whose trial shows another one's time, too.
        """
        self.settings, self.within, self.present = tuple(settings), within, present
        self.trial_of = {setting: trial_of(setting) for setting in self.settings}.__getitem__
        self.logs: dict[Setting, dict[int, float]] = {}
        """Setting to block to the log of the time that a sample took."""
        self.failed: set[Setting] = set()
        self.audited: list[Setting] = []
        self._random = random.Random(seed)
        self.expect({}, {})

    def expect(
        self,
        predicted: Mapping[Setting, float],
        floors: Mapping[Setting, float],
        bases: Mapping[Setting, int] | None = None,
        rooms: Mapping[tuple[Setting, Setting], Sequence[float]] | None = None,
    ) -> None:
        """Take over what the model says now; settings may lack.

        Args:
            predicted: logs of times.
            floors: logs of the least times.
            bases: on how many trials that rests, where it rests on other trials for other settings: then what trials
                vary by does not cancel in the difference of two.
            rooms: two settings to the logs of how many times as fast the second one can be at most, by what each trial
                of the first one leaves to gain.
        """
        self._predicted, self._floors, self._bases = dict(predicted), dict(floors), dict(bases or {})
        self._rooms = {
            pair: fmean(logs) + PARTS_ERROR + SIGMAS * ROOM_SD / math.sqrt(len(logs))
            for pair, logs in (rooms or {}).items()
        }
        self._forget()

    def add(self, block: int, setting: Setting, log_time: float | None) -> None:
        """Take over a trial; None where it failed, and the setting is not tried again."""
        self._forget()
        if log_time is None:
            self.failed.add(setting)
        else:
            self.logs.setdefault(setting, {})[block] = log_time

    def _forget(self) -> None:
        """Drop estimates that rest on fewer trials or on another model."""
        self._beliefs: dict[Setting, _Belief] = {}
        for name in ("spread", "_fit", "_model_error"):
            self.__dict__.pop(name, None)

    @property
    def measured(self) -> list[Setting]:
        """The settings that have run and never failed, cheapest first."""
        return [setting for setting in self._able() if setting in self.logs]

    def _able(self) -> list[Setting]:
        return [setting for setting in self.settings if setting not in self.failed]

    # ------------------------------------------------------------------------------------------- what to measure next

    def next_block(self, block: int) -> list[Setting]:
        """Name the trials to run next in their order; none where the search has ended."""
        wanted = self._following(block) if self.measured else self._first()
        order = [trial for trial in dict.fromkeys(map(self.trial_of, wanted)) if trial not in self.failed]
        self._random.shuffle(order)
        return order

    def _first(self) -> list[Setting]:
        """The present setting; where there is none, some that lie far apart."""
        able = self._able()
        if self.present is not None and self.present not in self.failed:
            return [self.present]
        return [able[step * len(able) // FIRST] for step in range(FIRST)]

    def _following(self, block: int) -> list[Setting]:
        recommended, _, settled = self.outcome()
        confirmed = self._confirmed(recommended)
        if not settled or len(self.logs[recommended]) < FEWEST:
            wanted = self._contenders(block)
        else:
            wanted = [] if confirmed else [recommended]
        return wanted if confirmed or self.present is None else [*wanted, self.present]

    def _confirmed(self, setting: Setting) -> bool:
        """Whether a setting ran beside the present one often enough; so, too, where no gain is asked for."""
        if self.present is None or self.present in self.failed or self.present == setting:
            return True
        return len(self._differences(setting, self.present)) >= CONFIRMED

    def _contenders(self, block: int) -> list[Setting]:
        """The leader, settings that may be better, and an audit."""
        leader, able = self.leader, self._able()
        contenders = [rival for rival in able if rival != leader and self.bound(leader, rival) > self.within]
        tried = sorted(
            (rival for rival in contenders if rival in self.logs), key=lambda rival: -self.bound(leader, rival)
        )
        wanted = [leader, *tried[:OPEN_ONES], *self._entering(contenders)]
        aside = [setting for setting in able if setting not in self.logs and setting not in contenders]
        if len(self.audited) < AUDITS and block > 1 and aside:
            self.audited.append(self._random.choice(aside))
            wanted.append(self.audited[-1])
        return wanted

    def _entering(self, contenders: Sequence[Setting]) -> list[Setting]:
        """Choose trials of settings that were not measured: the cheapest of those that may be best, then by promise."""
        promising = sorted((rival for rival in contenders if rival not in self.logs), key=self._least)
        if not promising:
            return []
        near = [rival for rival in promising if self._gap(rival, promising[0]) < self.within / 2]
        trials = map(self.trial_of, (min(near, key=self.settings.index), *promising))
        return list(dict.fromkeys(trials))[:WIDTH]

    def aside(self) -> Iterator[tuple[str, int]]:
        """Count the settings that were not measured, by what spoke against them."""
        if not self.measured:
            return
        leader, reasons = self.leader, {BY_FLOOR: 0, BY_MODEL: 0, OPEN: 0}
        for setting in self._able():
            if setting not in self.logs:
                by_floor, by_model = self._room(leader, setting), self.bound(leader, setting)
                reasons[BY_FLOOR if by_floor <= self.within else BY_MODEL if by_model <= self.within else OPEN] += 1
        yield from ((reason, count) for reason, count in reasons.items() if count)

    def audits(self) -> Iterator[Audit[Setting]]:
        """Settings that were set aside and measured all the same."""
        means, leader = self._means(), self.leader
        for setting in self.audited:
            if setting in means:
                yield Audit(setting, self._gap(setting, leader), means[setting] - means[leader])

    # ------------------------------------------------------------------------------------------- what trials show

    @property
    def leader(self) -> Setting:
        """The cheapest setting that is as good as the one with the lowest believed time, as far as that matters."""
        measured = self.measured
        times = {setting: self._believed(setting).mean for setting in measured} if self._predicted else self._means()
        return next(setting for setting in measured if times[setting] <= min(times.values()) + TIED * self.within)

    def outcome(self) -> Outcome[Setting]:
        """Recommend the leader, or the cheapest setting before it that is known to be within the tolerance."""
        leader, measured = self.leader, self.measured
        bounds = {
            setting: max((self.bound(setting, other) for other in self._able() if other != setting), default=0.0)
            for setting in measured[: measured.index(leader) + 1]
            if len(self.logs[setting]) >= FEWEST or setting == leader
        }
        best = next((setting for setting in bounds if bounds[setting] <= self.within), leader)
        return Outcome(best, max(self.within, bounds[best]), bounds[best] <= self.within)

    def bound(self, setting: Setting, other: Setting) -> float:
        """Bound the log of how many times as fast as a measured setting another one is, by what bounds it lowest."""
        mine, theirs = self._believed(setting), self._believed(other)
        bounds = [mine.mean - theirs.mean + SIGMAS * math.hypot(mine.sd, theirs.sd), self._room(setting, other)]
        if pairs := self._differences(setting, other):
            same_trials = self.trial_of(setting) == self.trial_of(other)
            bounds.append(fmean(pairs) + (0.0 if same_trials else self._half(pairs)))
        return min(bounds)

    def _room(self, setting: Setting, other: Setting) -> float:
        """How much the floor of another setting leaves to gain over a measured one."""
        mine = self._believed(setting)
        return min(mine.mean + SIGMAS * mine.sd - self._floor(other), self._rooms.get((setting, other), math.inf))

    def _least(self, setting: Setting) -> float:
        """The least log time that a setting may take."""
        belief = self._believed(setting)
        return max(self._floor(setting), belief.mean - SIGMAS * belief.sd)

    def _floor(self, setting: Setting) -> float:
        return self._floors.get(setting, -math.inf) - SIGMAS * self._basis_error(setting)

    def _basis_error(self, setting: Setting) -> float:
        """What the trials vary by on which prediction and floor rest, what all of a block share included."""
        if not self._bases.get(setting):
            return 0.0
        return math.hypot(self.spread.sd, pstdev(self._fit[1].values())) / math.sqrt(self._bases[setting])

    def _gap(self, setting: Setting, other: Setting) -> float:
        return self._predicted.get(setting, 0.0) - self._predicted.get(other, 0.0)

    def _believed(self, setting: Setting) -> _Belief:
        """Combine what the model says of a setting with its trials, each as far as it can be trusted."""
        if setting in self._beliefs:
            return self._beliefs[setting]
        means, sources = self._means(), []
        if setting in means:
            sources.append(_Belief(means[setting], self.spread.sd / math.sqrt(len(self.logs[setting]))))
        if setting in self._predicted and self._model_error is not None:
            level, error = self._model_error
            # Twice: the trials that a prediction rests on may be those of the setting itself.
            sd = math.hypot(error * self._scale(setting), 2 * self._basis_error(setting))
            sources.append(_Belief(level + self._predicted[setting], sd))
        belief = _Belief(0.0, math.inf)
        if sources:
            weight = sum(source.sd**-2 for source in sources)
            belief = _Belief(sum(source.mean * source.sd**-2 for source in sources) / weight, weight**-0.5)
        self._beliefs[setting] = belief
        return belief

    def _scale(self, setting: Setting) -> float:
        """How many times as much the model may be off here as near the measured setting that it finds fastest."""
        fastest = min(self._predicted[other] for other in self.measured if other in self._predicted)
        return 1 + abs(self._predicted[setting] - fastest) / FAR

    @cached_property
    def _model_error(self) -> tuple[float, float] | None:
        """What settings take over what the model says, and by how much that differs between them; None: no model."""
        means, spread = self._means(), self.spread.sd
        modelled = [setting for setting in means if setting in self._predicted]
        if not modelled:
            return None
        weights = [self._scale(setting) ** -2 for setting in modelled]
        excess = [means[setting] - self._predicted[setting] for setting in modelled]
        level = sum(weight * value for weight, value in zip(weights, excess, strict=True)) / sum(weights)
        squares = MODEL_BELIEF * MODEL_ERROR**2
        for setting, weight, value in zip(modelled, weights, excess, strict=True):
            squares += weight * max(0.0, (value - level) ** 2 - spread**2 / len(self.logs[setting]))
        return level, max(LEAST_ERROR, math.sqrt(squares / (MODEL_BELIEF + len(modelled) - 1)))

    def difference(self, setting: Setting, other: Setting) -> float:
        """Log of how many times as long a measured setting takes as another one, by all of their trials."""
        return self._means()[setting] - self._means()[other]

    def _differences(self, setting: Setting, other: Setting) -> list[float]:
        """Log times of a setting less those of another one in the same blocks."""
        mine, theirs = self.logs.get(setting, {}), self.logs.get(other, {})
        return [mine[block] - theirs[block] for block in mine.keys() & theirs.keys()]

    @cached_property
    def _fit(self) -> tuple[dict[Setting, float], dict[int, float]]:
        """A mean of every setting and an offset of every block (least squares, by turns)."""
        offsets = dict.fromkeys((block for logs in self.logs.values() for block in logs), 0.0)
        means: dict[Setting, float] = {}
        for _ in range(50):
            means = {
                setting: fmean(log - offsets[block] for block, log in self.logs[setting].items())
                for setting in self.measured
            }
            before, offsets = offsets, {}
            for block in before:
                left = [self.logs[setting][block] - means[setting] for setting in means if block in self.logs[setting]]
                offsets[block] = fmean(left) if left else 0.0
            middle = fmean(offsets.values())
            offsets = {block: offset - middle for block, offset in offsets.items()}
            if offsets == before:
                break
        return means, offsets

    def _means(self) -> dict[Setting, float]:
        return self._fit[0]

    @cached_property
    def spread(self) -> Spread:
        """How much trials vary within blocks."""
        means, offsets = self._fit
        distinct = {self.trial_of(setting): setting for setting in means}.values()
        residuals = [
            log - means[setting] - offsets[block] for setting in distinct for block, log in self.logs[setting].items()
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
        grown = 1 + n * PRIOR**2
        level = max(1, trials - 1) / (2 * CHANCE) * math.sqrt(grown)
        factor = level ** (2 / (freedom + 1))
        if factor >= grown:
            return math.inf
        return math.sqrt(freedom * (factor - 1) / (1 - factor / grown) * variance / n)
