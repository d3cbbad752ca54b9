"""Search for the best of many settings: which to measure next, and how far from the best the recommended one can be.

Settings are measured in blocks, each setting once a block. A block holds the leader, whose mean is the lowest, and a
few settings that might still be better by more than ``within``, the most promising first. A setting is set aside where
its floor is too near to the leader's time, or where it would gain too little should the model err by ``SIGMAS`` times
its error in that setting's favour (``plan.evidence``). Of each value of each knob one setting is measured all the same:
what the model had said of it counts towards the model's error, which widens what may still be better.

The search ends when no setting may be better by more than the tolerance. The recommended setting is the cheapest for
which that holds. Its bound is one of measured settings alone; what was set aside has none.

Settings are cells of a matrix (``plan.tuning``) or arguments of a script's DataLoader (``feedrate tune``). Their source
runs the trials of ``next_block``, adds what they took (``add``) and what they show of other settings (``expect``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Generic, NamedTuple

from feedrate.plan.evidence import Evidence, Model, Setting, Unseen

TIED = 1 / 3
"""Of the tolerance: settings that differ by less are equal, and the cheaper one leads."""
FIRST, WIDTH, OPEN_ONES, COVERED = 5, 2, 2, 2
"""Settings of the first block where none is the present one; those that enter a later one, of those that ran and may
still be better than the leader, and of those with values that have not run."""
FEWEST = 2
"""Blocks of the recommended setting."""
BY_FLOOR = "their step, their workers' preparing or the cores leave too little to gain"
BY_MODEL = "by the pipeline model they gain too little, its error allowed for"
OPEN = "they may still be better"
NEAR = 0.85
"""Of the tolerance: the most that model and floors may leave of a setting that they set aside; trials are surer."""
GRID_BLOCKS = 8
"""Blocks of the grid that a search is held against."""
CONFIRMED = 4
"""Blocks in which the present and the recommended setting ran, for an interval of the gain."""


class Outcome(NamedTuple, Generic[Setting]):
    """Where a search stands."""

    recommended: Setting
    settled: bool
    """Whether no other setting may be better by more than the tolerance, as far as anything is known of it."""
    compared: int
    """Settings that were measured beside the recommended one until that was known by their trials alone, or that may
    still be better."""
    bound: float
    """The log of how many times the pace of the best of these can be the recommended one's, with confidence; the
    tolerance at least, as that is what a search stops by. Infinite where that is not known, or nothing was compared."""
    unseen: int
    """Settings of which the model had said something before they were measured."""
    model_error: float
    """What it was off about these (log sd)."""


class Audit(NamedTuple, Generic[Setting]):
    """A setting that was set aside and measured all the same: logs of its time over that of the leader of then."""

    setting: Setting
    predicted: float
    measured: float


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
        knobs: Callable[[Setting], Iterable[tuple[str, object]]] = lambda _: (),
    ) -> None:
        """Begin.

        Args:
            settings: cheapest first: of those within reach of the best the first is recommended.
            within: tolerance, the log of how many times as fast the best one may be.
            seed: orders blocks and draws audits.
            present: the setting that the gain is measured against.
            trial_of: the setting whose trial shows another one's time, too.
            knobs: names and values of a setting's knobs, of each of which one setting is measured.
        """
        self.within, self.present = within, present
        self.trial_of, self._knobs = cache(trial_of), cache(lambda setting: frozenset(knobs(setting)))
        self.extend(settings)
        self.logs: dict[Setting, dict[int, float]] = {}
        """Setting to block to the log of the time that a sample took."""
        self.failed: set[Setting] = set()
        self.closing = False
        """Whether no other setting is tried any more: what is left of the time tells what the recommended one gains."""
        self._unseen: list[Unseen[Setting]] = []
        self._random = random.Random(seed)
        self._model: Model[Setting] = Model()
        self._evidence: Evidence[Setting] | None = None

    def extend(self, settings: Iterable[Setting]) -> None:
        """Choose among these from now on, cheapest first; what was measured stays known."""
        self.settings = tuple(settings)

    def expect(self, model: Model[Setting]) -> None:
        """Take over what the model says now."""
        self._model, self._evidence = model, None

    def add(self, block: int, setting: Setting, log_time: float | None) -> None:
        """Take over a trial; None where it failed, and the setting is not tried again."""
        window = self.trial_of(setting)
        if log_time is not None and self.measured and window not in map(self.trial_of, self.logs):
            leader, evidence = self.leader, self.evidence
            self._unseen.append(evidence.foreseen(setting, leader, not self._open(leader, setting)))
        self._evidence = None
        if log_time is None:
            self.failed.add(setting)
        else:
            self.logs.setdefault(setting, {})[block] = log_time

    @property
    def measured(self) -> list[Setting]:
        """The settings that have run and never failed, cheapest first."""
        return [setting for setting in self._able() if setting in self.logs]

    def _able(self) -> list[Setting]:
        return [setting for setting in self.settings if setting not in self.failed]

    @property
    def evidence(self) -> Evidence[Setting]:
        """What is known of the settings now."""
        if self._evidence is None:
            logs = {setting: self.logs[setting] for setting in self.measured}
            self._evidence = Evidence(logs, self._model, self.trial_of, self._unseen)
        return self._evidence

    @property
    def leader(self) -> Setting:
        """The setting that all others are held against."""
        return self.evidence.leader(TIED * self.within)

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
        outcome = self.outcome()
        confirmed = self._confirmed(outcome.recommended)
        if not self.closing and (not outcome.settled or len(self.logs[outcome.recommended]) < FEWEST):
            wanted = self._contenders()
        else:
            wanted = [] if confirmed else [outcome.recommended]
        if block > 1 and not self.closing and (new := self._uncovered()):
            wanted = [*dict.fromkeys([self.leader, *wanted]), *new]
        return wanted if confirmed or self.present is None else [*wanted, self.present]

    def _confirmed(self, setting: Setting) -> bool:
        """Whether a setting ran beside the present one often enough; so, too, where no gain is asked for."""
        if self.present is None or self.present in self.failed or self.present == setting:
            return True
        return len(self.evidence.differences(setting, self.present)) >= CONFIRMED

    def _contenders(self) -> list[Setting]:
        leader, bound = self.leader, self.evidence.bound
        contenders = [rival for rival in self._able() if rival != leader and self._open(leader, rival)]
        tried = sorted((rival for rival in contenders if rival in self.logs), key=lambda rival: -bound(leader, rival))
        return [leader, *tried[:OPEN_ONES], *self._entering(contenders)]

    def _uncovered(self) -> list[Setting]:
        """Choose settings with values that no measured one has: of each the most promising, the cheapest of equals."""
        able, wanted = self._able(), list[Setting]()
        left = set[tuple[str, object]]().union(*map(self._knobs, able)).difference(*map(self._knobs, self.logs))
        while left and len(wanted) < COVERED:
            wanted.append(min((setting for setting in able if self._knobs(setting) & left), key=self.evidence.least))
            left -= self._knobs(wanted[-1])
        return wanted

    def _entering(self, contenders: Sequence[Setting]) -> list[Setting]:
        """Choose trials of settings that were not measured: the cheapest of those that may be best, then by promise."""
        promising = sorted((rival for rival in contenders if rival not in self.logs), key=self.evidence.least)
        if not promising:
            return []
        near = [rival for rival in promising if self.evidence.gap(rival, promising[0]) < self.within / 2]
        trials = map(self.trial_of, (min(near, key=self.settings.index), *promising))
        return list(dict.fromkeys(trials))[:WIDTH]

    def aside(self) -> Iterator[tuple[str, int]]:
        """Count the settings that were not measured, by what spoke against them."""
        if not self.measured:
            return
        best, reasons = self.outcome().recommended, {BY_FLOOR: 0, BY_MODEL: 0, OPEN: 0}
        for setting in self._able():
            if setting not in self.logs:
                by_floor, by_model = self.evidence.room(best, setting), self.evidence.modelled(best, setting)
                near = NEAR * self.within
                reasons[BY_FLOOR if by_floor <= near else BY_MODEL if by_model <= near else OPEN] += 1
        yield from ((reason, count) for reason, count in reasons.items() if count)

    def audits(self) -> Iterator[Audit[Setting]]:
        """Settings that were set aside and measured all the same."""
        for unseen in self.evidence.unseen:
            if unseen.aside and not math.isnan(unseen.predicted):
                yield Audit(unseen.setting, unseen.predicted, unseen.predicted + self.evidence.surprise(unseen))

    def _open(self, setting: Setting, other: Setting) -> bool:
        """Whether another setting may be better than a measured one by more than the tolerance."""
        evidence = self.evidence
        if evidence.measured(setting, other) <= self.within:
            return False
        return min(evidence.room(setting, other), evidence.modelled(setting, other)) > NEAR * self.within

    def _compared(self, setting: Setting, other: Setting) -> bool:
        """Whether trials alone tell how much better another setting can be, or nothing else does."""
        decided = self.evidence.measured(setting, other) <= self.within
        return decided or (other in self.logs and self._open(setting, other))

    def outcome(self) -> Outcome[Setting]:
        """Recommend the leader, or the cheapest setting before it than which trials show that not to be better."""
        leader, measured = self.leader, self.measured
        cheaper = [setting for setting in measured[: measured.index(leader)] if len(self.logs[setting]) >= FEWEST]
        near = (
            setting
            for setting in cheaper
            if self.evidence.measured(setting, leader) <= self.within and self._best(setting)
        )
        best = next(near, leader)
        compared = [other for other in measured if other != best and self._compared(best, other)]
        most = max((self.evidence.measured(best, other) for other in compared), default=math.inf)
        unseen = sum(not math.isnan(one.predicted) for one in self.evidence.unseen)
        bound = max(self.within, most)
        return Outcome(best, self._best(best), len(compared), bound, unseen, self.evidence.model_error)

    def _best(self, setting: Setting) -> bool:
        """Whether no other setting may be better by more than the tolerance."""
        return not any(self._open(setting, other) for other in self._able() if other != setting)
