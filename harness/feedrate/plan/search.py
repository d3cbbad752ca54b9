"""Search for the best of many settings: which to measure next, and how far from the best the recommended one can be.

Settings are measured in blocks, each setting once a block. A block holds the leader, whose mean is the lowest, and a
few settings that might still be better by more than ``within``, the most promising first. A setting is set aside
unmeasured where its floor is too near to the leader's time, or where it would gain too little should the model err by
``SIGMAS`` times its error in that setting's favour (``plan.evidence``). ``AUDITS`` of those set aside are measured all
the same, and count towards the error.

The search ends when the bound is within the tolerance. The recommended setting is the cheapest for which it is.

Settings are cells of a matrix (``plan.tuning``) or arguments of a script's DataLoader (``feedrate tune``). Their source
runs the trials of ``next_block``, adds what they took (``add``) and what they show of other settings (``expect``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple

from feedrate.plan.evidence import Evidence, Model, Setting

TIED = 1 / 3
"""Of the tolerance: settings that differ by less are equal, and the cheaper one leads."""
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
        self._model: Model[Setting] = Model()
        self._evidence: Evidence[Setting] | None = None

    def expect(
        self,
        predicted: Mapping[Setting, float],
        floors: Mapping[Setting, float],
        bases: Mapping[Setting, int] | None = None,
        rooms: Mapping[tuple[Setting, Setting], Sequence[float]] | None = None,
    ) -> None:
        """Take over what the model says now (``evidence.Model``)."""
        self._model, self._evidence = Model(predicted, floors, bases or {}, rooms or {}), None

    def add(self, block: int, setting: Setting, log_time: float | None) -> None:
        """Take over a trial; None where it failed, and the setting is not tried again."""
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
            self._evidence = Evidence(logs, self._model, self.trial_of)
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
        return len(self.evidence.differences(setting, self.present)) >= CONFIRMED

    def _contenders(self, block: int) -> list[Setting]:
        """The leader, settings that may be better, and an audit."""
        leader, able, bound = self.leader, self._able(), self.evidence.bound
        contenders = [rival for rival in able if rival != leader and bound(leader, rival) > self.within]
        tried = sorted((rival for rival in contenders if rival in self.logs), key=lambda rival: -bound(leader, rival))
        wanted = [leader, *tried[:OPEN_ONES], *self._entering(contenders)]
        aside = [setting for setting in able if setting not in self.logs and setting not in contenders]
        if len(self.audited) < AUDITS and block > 1 and aside:
            self.audited.append(self._random.choice(aside))
            wanted.append(self.audited[-1])
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
        leader, reasons = self.leader, {BY_FLOOR: 0, BY_MODEL: 0, OPEN: 0}
        for setting in self._able():
            if setting not in self.logs:
                by_floor, by_model = self.evidence.room(leader, setting), self.evidence.bound(leader, setting)
                reasons[BY_FLOOR if by_floor <= self.within else BY_MODEL if by_model <= self.within else OPEN] += 1
        yield from ((reason, count) for reason, count in reasons.items() if count)

    def audits(self) -> Iterator[Audit[Setting]]:
        """Settings that were set aside and measured all the same."""
        means, leader = self.evidence.means, self.leader
        for setting in self.audited:
            if setting in means:
                yield Audit(setting, self.evidence.gap(setting, leader), means[setting] - means[leader])

    def outcome(self) -> Outcome[Setting]:
        """Recommend the leader, or the cheapest setting before it that is known to be within the tolerance."""
        leader, measured, able, bound = self.leader, self.measured, self._able(), self.evidence.bound
        bounds = {
            setting: max((bound(setting, other) for other in able if other != setting), default=0.0)
            for setting in measured[: measured.index(leader) + 1]
            if len(self.logs[setting]) >= FEWEST or setting == leader
        }
        best = next((setting for setting in bounds if bounds[setting] <= self.within), leader)
        return Outcome(best, max(self.within, bounds[best]), bounds[best] <= self.within)
