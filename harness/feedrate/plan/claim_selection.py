"""Which claims a plan tests, and for which of them a sweep still measures: certain ones make room for the others.

A claim is *certain* when an interval that is far stricter than its verdict needs leaves only one verdict, for all that
it says: its level is that of the smallest p-value among all claims of the run by Holm, with a tenth of the error. Where
an effect is the mean of several cases, each case must leave one verdict, too, by an interval that is as strict as the
verdict *depends* needs. Nothing is certain before six blocks. What is certain leaves, so that large effects, of which
there are many, cost six blocks and not thirty. Everything else goes on as long as the protocol and the budget allow: an
interval that is as narrow as a contrast's has to be may still leave two verdicts. Where a claim stays open near no
difference, the windows of its cells grow, and those of whatever is compared with one of them.

To stop for what is seen costs something. Simulated under normal noise at spreads of 3 to 8.5 %, of runs whose 30 claims
all lie right at a margin 2 to 2.5 % become certain of a wrong verdict, of the 5 % that their verdicts may be wrong.
Intervals of claims that left cover the truth in 92 to 95 % of cases, whatever the effect. Those that leave sooner than
their effect would let expect look too large: of effects of 5 % at a spread of 3 %, 3.5 % leave before 8 blocks, and the
intervals of half of these miss the truth.

Where a budget cannot decide all that is open, time goes to the claims that it can decide, those that take least of it
first; only when none is in reach, to the least certain. What is in reach is predicted anew before every block: after
the first one, which claims could have the six blocks before which nothing is decided. A claim that has a verdict but is
not certain of it stays in reach, so that none is left alone just when it crossed a margin.

Pure Python: the parent of a sweep loads no pandas.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from feedrate.plan import suite
from feedrate.plan.claim import Claim, Effect, cell_on, terms, untestable
from feedrate.plan.stopping import BlockLogs, Rule, blocks_to, deviation, half_width
from feedrate.schema.axes import Cell, cell_id
from feedrate.schema.metrics import METRICS, SAME, least_of, room

LEAST_BLOCKS = 6
"""Before anything is certain: of intervals of claims that left after four, as few as 72 % were simulated to cover."""
GROWS_AFTER = 10
"""Blocks after which the windows of a claim grow that is open and lies near no difference."""
GROWN = 4
"""How many times as long they are then."""
ERROR = 0.005
"""Of calling any of a run's claims certain that is not; a tenth of what its verdicts allow."""
VERDICT_ERROR = 0.05
"""Of a wrong verdict among the claims of a run, as ``analysis.claims`` allows it: what reaching a verdict asks for."""
FACT_TRIALS = 2
"""Checks of a fact; they do not scatter, they agree or they do not."""


@dataclass(frozen=True, slots=True)
class PlannedEffect:
    """A number that decides a claim, alone or with others."""

    metric: str | None
    """What is compared; None for a fact."""
    weights: Mapping[str, float]
    """cell_id to its weight in the effect; of a fact, the check that decides."""
    least: float | None = None
    """The ratio from which on the source's figure is confirmed; None where there is none, and 1 is what counts."""
    cases: tuple[Mapping[str, float], ...] = ()
    """The cells of each case by themselves, where it is the mean of several."""

    @property
    def averaged(self) -> bool:
        """Whether the GPU's driver averages what is compared."""
        return self.metric is not None and METRICS[self.metric].averaged

    def room(self, log: float) -> float:
        """Say how wide the interval around a log may be, as a half-width, before it is inconclusive."""
        return room(log) if self.least is None else abs(log - math.log(self.least))


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """A claim that a plan tests."""

    id: str
    effects: tuple[PlannedEffect, ...]
    """What decides it: all of them."""
    cells: frozenset[str]
    """All cells that it wants, those of the numbers beside it among them."""
    averaged: frozenset[str] = frozenset()
    """Those of them of which something is compared that the GPU's driver averages."""

    @property
    def fact(self) -> bool:
        """Whether it is the check of a fact."""
        return self.effects[0].metric is None

    @property
    def deciding(self) -> frozenset[str]:
        """The cells without which it cannot be decided."""
        return frozenset(cell for effect in self.effects for cell in effect.weights)


def claims_of(suites: Iterable[str]) -> list[Claim]:
    """List the claims that some suites test: their own, and for the suite of all claims everybody's."""
    wanted = set(filter(suite.for_claims, suites))
    if not wanted:
        return []
    return [claim for owner, claim in suite.claims().values() if suite.CLAIMS in wanted or owner in wanted]


def plan_claims(
    claims: Iterable[Claim],
    cells: Collection[str],
    device: str,
    photographs: str,
    impossible: Callable[[Cell], str | None],
    cores: int = 1,
) -> tuple[tuple[PlannedClaim, ...], dict[str, str]]:
    """The claims that can be tested by the cells that are planned, and for each other one by its id why it cannot."""
    planned, reasons = [], {}
    for claim in (one.on(device) for one in claims):
        checks = [cell_on({"mode": "check", **values}, device, photographs)[0] for values in claim.facts]
        sides = [term.cell for effect in claim.deciding() for term in terms(effect, device, photographs)]
        missing = [cell for cell in sides or checks[:1] if cell_id(cell) not in cells]
        if claim.most_cores and cores > claim.most_cores:
            reasons[claim.id] = f"its settings need {claim.most_cores} cores at most; this machine has {cores}"
        elif cores < claim.least_cores:
            reasons[claim.id] = f"its settings need {claim.least_cores} cores or more; this machine has {cores}"
        elif reason := untestable(claim, device) or next(filter(None, map(impossible, missing)), None):
            reasons[claim.id] = reason
        elif missing:
            reasons[claim.id] = "this run leaves out settings of it"
        else:
            effects = [_planned(effect, device, photographs) for effect in claim.deciding()]
            beside = [_planned(effect, device, photographs) for effect in claim.asides.values()]
            facts = [PlannedEffect(None, {cell_id(cell): 1.0}) for cell in checks]
            wanted = {cell for effect in (*effects, *beside, *facts) for cell in effect.weights}
            averaged = {cell for effect in (*effects, *beside) if effect.averaged for cell in effect.weights}
            there = frozenset(cells)
            planned.append(PlannedClaim(claim.id, tuple(effects or facts[:1]), there & wanted, there & averaged))
    return tuple(planned), reasons


def _planned(effect: Effect, device: str, photographs: str) -> PlannedEffect:
    """An effect with its cells, and those of each of its cases."""
    weights, *cases = (
        {term.cell_id: term.weight for term in terms(effect, device, photographs, of)}
        for of in (None, *([(1.0, case)] for case in effect.several))
    )
    least = None if effect.figure is None else least_of(effect.figure, effect.says)
    return PlannedEffect(effect.metric, weights, least, tuple(cases))


def compared_with(cells: AbstractSet[str], effects: Sequence[PlannedEffect]) -> set[str]:
    """Find all that effects compare with some cells, and with what is compared with them; the cells themselves too.

    Windows of all these are of one length: a longer one tells another share of a start or of a growth.
    """
    compared = set(cells)
    while (
        more := {cell for effect in effects if compared & effect.weights.keys() for cell in effect.weights} - compared
    ):
        compared |= more
    return compared


class ClaimTracker:
    """How far a run has come with its claims."""

    def __init__(self, rule: Rule, claims: Sequence[PlannedClaim]) -> None:
        """Begin with no trial."""
        self.rule = rule
        self.claims = tuple(claims)
        self.level = 1 - ERROR / max(1, len(self.claims))
        self.case_level = 1 - VERDICT_ERROR / max(1, sum(len(e.cases) for claim in self.claims for e in claim.effects))
        self._metrics: defaultdict[str, set[str | None]] = defaultdict(set)
        for claim in self.claims:
            for effect in claim.effects:
                for cell in effect.weights:
                    self._metrics[cell].add(effect.metric)
        self._tried: defaultdict[str, set[int]] = defaultdict(set)
        self._logs: defaultdict[str | None, BlockLogs] = defaultdict(BlockLogs)

    def add(self, trial: Mapping[str, Any]) -> None:
        """Add a trial, however it ended."""
        cell, block = trial["cell_id"], trial["block"]
        self._tried[cell].add(block)
        if trial["outcome"] != "ok":
            return
        for metric in self._metrics.get(cell, ()):
            value = METRICS[metric].of(trial) if metric else 1.0
            if value is not None:
                self._logs[metric].add(cell, block, value)

    def values(self, effect: PlannedEffect, before: int | None = None) -> list[float]:
        """The effect's logs in the blocks that have all of its cells, those before a block only if one is given."""
        return self._logs[effect.metric].sums(effect.weights, before)

    def tried(self, claim: PlannedClaim, before: int | None = None) -> int:
        """In how many blocks the claim had its turn, whether or not its trials ended well."""
        together = set[int].intersection(*(self._tried[cell] for cell in claim.deciding))
        return sum(before is None or block < before for block in together)

    def certainty(self, claim: PlannedClaim, before: int | None = None) -> float:
        """How many times as wide its strict interval might be without leaving its verdict; 1 and more is certain.

        0 where nothing can be said yet, and small where the estimate lies near a margin. Of several effects the least
        certain counts.
        """
        return min(self._certainty(effect, before) for effect in claim.effects)

    def _certainty(self, effect: PlannedEffect, before: int | None) -> float:
        if effect.metric is None:
            return len(self.values(effect, before)) / FACT_TRIALS
        return min(_spare(effect, values, level) for values, level in self._samples(effect, before, self.level))

    def _samples(self, effect: PlannedEffect, before: int | None, level: float) -> Iterator[tuple[list[float], float]]:
        """The logs of an effect with the level of its interval, and those of each of its cases with theirs."""
        yield self.values(effect, before), level
        for case in effect.cases:
            yield self._logs[effect.metric].sums(case, before), self.case_level

    def done(self, claim: PlannedClaim, before: int | None = None) -> bool:
        """Whether it is certain, or had the protocol's most blocks."""
        return self.tried(claim, before) >= self.rule.most or self.certainty(claim, before) >= 1

    def open(self, before: int, dropped: Iterable[str] = ()) -> list[PlannedClaim]:
        """The claims that are not done, the least certain first; those with a cell that only ever failed are gone."""
        gone = set(dropped)
        left = [claim for claim in self.claims if gone.isdisjoint(claim.deciding) and not self.done(claim, before)]
        return sorted(left, key=lambda claim: (self.certainty(claim, before), claim.id))

    def all_s(self, claims: Iterable[PlannedClaim], before: int, seconds: Mapping[str, float]) -> float:
        """Say how long all cells of open claims take until they have the fewest blocks that decide anything."""
        blocks: dict[str, int] = {}
        for claim in claims:
            blocks |= {cell: max(blocks.get(cell, 0), self._least(claim, before)) for cell in claim.cells}
        return sum(count * seconds.get(cell, 0.0) for cell, count in blocks.items())

    def _least(self, claim: PlannedClaim, before: int) -> int:
        """How many blocks an open claim lacks before anything can be decided, at least one."""
        return max(1, (FACT_TRIALS if claim.fact else LEAST_BLOCKS) - self.tried(claim, before))

    def grown(self, before: int) -> set[str]:
        """The cells whose windows are longer from now on: of open claims that lie near no difference.

        There an interval must be narrow on both sides, which more blocks alone seldom make it. Whatever an open claim
        compares with such a cell grows with it.
        """
        compared = [effect for claim in self.open(before) for effect in claim.effects if effect.metric]
        near = {
            cell
            for effect in compared
            if len(logs := self.values(effect, before)) >= GROWS_AFTER and abs(fmean(logs)) < math.log(SAME[1])
            for cell in effect.weights
        }
        return compared_with(near, compared)

    def in_reach(
        self, before: int, dropped: Iterable[str], seconds: Mapping[str, float], left_s: float
    ) -> list[PlannedClaim]:
        """The open claims that the time left would bring to a verdict, those that take least of it first.

        What else fits into the time with all of its blocks follows. While too few blocks are there to tell, those are
        in reach that can still have enough of them. ``seconds`` are those of a cell's trial.
        """
        claims = self.open(before, dropped)
        if before < LEAST_BLOCKS:
            return self._with_enough_blocks(claims, before, seconds, left_s)
        level = 1 - VERDICT_ERROR / max(1, len(claims))
        block_s = {claim.id: sum(seconds.get(cell, 0.0) for cell in claim.deciding) for claim in claims}
        verdict_s = {claim.id: self._missing(claim, before, level) * block_s[claim.id] for claim in claims}
        all_s = {claim.id: (self.rule.most - self.tried(claim, before)) * block_s[claim.id] for claim in claims}
        quickest = sorted(claims, key=lambda claim: (verdict_s[claim.id], claim.id))
        chosen: list[PlannedClaim] = []
        for takes_s, order in ((verdict_s, quickest), (all_s, claims)):
            for claim in order:
                if claim not in chosen and takes_s[claim.id] <= left_s:
                    chosen.append(claim)
                    left_s -= takes_s[claim.id]
        return chosen

    def _with_enough_blocks(
        self, claims: list[PlannedClaim], before: int, seconds: Mapping[str, float], left_s: float
    ) -> list[PlannedClaim]:
        """The open claims that can have the fewest blocks, those that take least first; cells that they share once."""
        chosen, paid = list[PlannedClaim](), set[str]()
        for claim in sorted(claims, key=lambda one: (sum(seconds.get(cell, 0.0) for cell in one.deciding), one.id)):
            takes_s = self._least(claim, before) * sum(seconds.get(cell, 0.0) for cell in claim.deciding - paid)
            if takes_s <= left_s:
                chosen.append(claim)
                paid |= claim.deciding
                left_s -= takes_s
        return chosen

    def _missing(self, claim: PlannedClaim, before: int, level: float) -> float:
        """Predict how many more blocks a verdict takes, at least one; infinitely many where the protocol ends first."""
        samples = ((effect, *sample) for effect in claim.effects for sample in self._samples(effect, before, level))
        return max(self._missing_of(*sample) for sample in samples)

    def _missing_of(self, effect: PlannedEffect, values: Sequence[float], level: float) -> float:
        if effect.metric is None or len(values) < LEAST_BLOCKS:
            return 1
        wanted = blocks_to(effect.room(fmean(values)), deviation(values), LEAST_BLOCKS, self.rule.most + 1, level)
        return max(1, wanted - len(values)) if wanted <= self.rule.most else math.inf

    def expected(self, before: int, dropped: Iterable[str] = ()) -> dict[str, int]:
        """Predict with how many blocks each cell that an open claim wants will be done.

        A claim that had to wait has its blocks later than others: the protocol's most are each claim's own.
        """
        gone, blocks = set(dropped), dict[str, int]()
        for claim in self.open(before, gone):
            needed = [self.rule.needed(self.values(effect, before)) for effect in claim.effects]
            wanted = FACT_TRIALS if claim.fact else max(needed)
            more = max(1, min(self.rule.most, wanted) - self.tried(claim, before))
            blocks |= {cell: max(blocks.get(cell, 0), before + more) for cell in claim.cells - gone}
        return blocks


def _spare(effect: PlannedEffect, values: Sequence[float], level: float) -> float:
    """How many times as wide an interval might be; 0 after too few blocks."""
    if len(values) < LEAST_BLOCKS:
        return 0.0
    half = half_width(values, level)
    return effect.room(fmean(values)) / half if half else math.inf
