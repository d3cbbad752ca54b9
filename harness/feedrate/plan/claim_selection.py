"""Which claims a sweep still has to ask about: the certain ones make room for the others.

A claim is *certain* when an interval that is far stricter than its verdict needs leaves only one verdict: its level is
that of the smallest p-value among all claims of the run by Holm, with a tenth of the error. Looking after every block
and stopping what is certain then adds little to the chance of a wrong verdict, and large effects, of which there are
many, cost four blocks and not thirty. Everything else goes on as long as the protocol and the budget allow: an interval
that is as narrow as a contrast's has to be may still leave two verdicts.

Where a budget cannot decide all that is open, time goes to the claims that it can decide, those that take least of it
first; only when none is in reach, to the least certain. What is in reach is predicted anew before every block. A claim
that has a verdict but is not certain of it stays in reach, so that none is left alone just when it crossed a margin.

Pure Python: the parent of a sweep loads neither pandas nor SciPy.

Which claims a plan asks about, and why it cannot test the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from feedrate.plan import suite
from feedrate.plan.claim import Claim, Term, Values, cells_of, terms, untestable
from feedrate.plan.stopping import Rule, blocks_to, deviation, half_width
from feedrate.schema.axes import Cell, cell_id
from feedrate.schema.metrics import METRICS, room

LEAST_BLOCKS = 4
"""Before anything is certain."""
ERROR = 0.005
"""Of calling any of a run's claims certain that is not; a tenth of what its verdicts allow."""
VERDICT_ERROR = 0.05
"""Of a wrong verdict among the claims of a run, as ``analysis.claims`` allows it: what reaching a verdict asks for."""
FACT_TRIALS = 2
"""Checks of a fact; they do not scatter, they agree or they do not."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A claim as the parent of a sweep sees it."""

    name: str
    metric: str | None
    """What is compared; None for a fact."""
    weights: Mapping[str, float]
    """cell_id to its weight in the effect; of a fact, the checks."""
    cells: frozenset[str]
    """All cells that it wants, those of the numbers beside it among them."""


class Asking:
    """What a run knows of its claims so far."""

    def __init__(self, rule: Rule, asked: Sequence[Asked]) -> None:
        """Begin with nothing known."""
        self.rule = rule
        self.asked = tuple(asked)
        self.level = 1 - ERROR / max(1, len(self.asked))
        self._wants: defaultdict[str, set[str]] = defaultdict(set)
        for claim in self.asked:
            for cell in claim.weights:
                self._wants[cell].add(claim.metric or "")
        self._tried: defaultdict[str, set[int]] = defaultdict(set)
        self._logs: defaultdict[tuple[str, str], dict[int, list[float]]] = defaultdict(dict)

    def add(self, trial: Mapping[str, Any]) -> None:
        """Take in a trial, however it ended."""
        cell, block = trial["cell_id"], trial["block"]
        self._tried[cell].add(block)
        if trial["outcome"] != "ok":
            return
        for metric in self._wants.get(cell, ()):
            value = METRICS[metric].of(trial) if metric else 1.0
            if value is not None:
                self._logs[metric, cell].setdefault(block, []).append(math.log(value))

    def values(self, claim: Asked, before: int | None = None) -> list[float]:
        """The effect's logs in the blocks that have all of its cells, those before a block only if one is given."""
        found = [
            {block: fmean(logs) for block, logs in self._logs[claim.metric or "", cell].items()}
            for cell in claim.weights
        ]
        shared = set.intersection(*(set(blocks) for blocks in found)) if found else set()
        return [
            sum(weight * blocks[block] for weight, blocks in zip(claim.weights.values(), found, strict=True))
            for block in sorted(shared)
            if before is None or block < before
        ]

    def tried(self, claim: Asked, before: int | None = None) -> int:
        """In how many blocks the claim had its turn, whether or not its trials ended well."""
        together = set[int].intersection(*(self._tried[cell] for cell in claim.weights))
        return sum(before is None or block < before for block in together)

    def certainty(self, claim: Asked, before: int | None = None) -> float:
        """How many times as wide its strict interval might be without leaving its verdict; 1 and more is certain.

        0 where nothing can be told yet, and small where the estimate lies near a margin.
        """
        values = self.values(claim, before)
        if claim.metric is None:
            return len(values) / FACT_TRIALS
        if len(values) < LEAST_BLOCKS:
            return 0.0
        half = half_width(values, self.level)
        return room(fmean(values)) / half if half else math.inf

    def done(self, claim: Asked, before: int | None = None) -> bool:
        """Whether more blocks would tell nothing that is wanted."""
        return self.tried(claim, before) >= self.rule.most or self.certainty(claim, before) >= 1

    def open(self, before: int, dropped: Iterable[str] = ()) -> list[Asked]:
        """The claims that are not done, the least certain first; those with a cell that only ever failed are gone."""
        gone = set(dropped)
        left = [claim for claim in self.asked if gone.isdisjoint(claim.weights) and not self.done(claim, before)]
        return sorted(left, key=lambda claim: (self.certainty(claim, before), claim.name))

    def cells(self, claim: Asked, before: int) -> AbstractSet[str]:
        """What a claim wants of a block that has no room for everything: later ones leave out what stands beside it."""
        return claim.cells if before < LEAST_BLOCKS else claim.weights.keys()

    def in_reach(self, before: int, dropped: Iterable[str], seconds: Mapping[str, float], left_s: float) -> list[Asked]:
        """The open claims that the time left would bring to a verdict, those that take least of it first.

        Args:
            before: the block that is about to begin.
            dropped: cells that only ever failed.
            seconds: cell_id to what a trial of it takes.
            left_s: of the budget.

        Returns:
            What can be decided, then what else fits into the time with all of its blocks; everything that is open while
            too few blocks are there to tell.
        """
        claims = self.open(before, dropped)
        if before < LEAST_BLOCKS:
            return claims
        level = 1 - VERDICT_ERROR / max(1, len(claims))
        each = {claim.name: sum(seconds.get(cell, 0.0) for cell in self.cells(claim, before)) for claim in claims}
        takes = {claim.name: self._missing(claim, before, level) * each[claim.name] for claim in claims}
        quickest = sorted(claims, key=lambda claim: (takes[claim.name], claim.name))
        whole = {claim.name: (self.rule.most - self.tried(claim, before)) * each[claim.name] for claim in claims}
        chosen: list[Asked] = []
        for wanted, order in ((takes, quickest), (whole, claims)):
            for claim in order:
                if claim not in chosen and wanted[claim.name] <= left_s:
                    chosen.append(claim)
                    left_s -= wanted[claim.name]
        return chosen

    def _missing(self, claim: Asked, before: int, level: float) -> float:
        """Predict how many more blocks a verdict takes, at least one; infinitely many where the protocol ends first."""
        values = self.values(claim, before)
        if claim.metric is None or len(values) < LEAST_BLOCKS:
            return 1
        wanted = blocks_to(room(fmean(values)), deviation(values), LEAST_BLOCKS, self.rule.most + 1, level)
        return max(1, wanted - len(values)) if wanted <= self.rule.most else math.inf

    def expected(self, before: int, dropped: Iterable[str] = ()) -> dict[str, int]:
        """Predict with which block each cell will be done, from what was seen before a block.

        A claim that had to wait has its blocks later than others: the protocol's most are each claim's own.

        Returns:
            cell_id to the number of the run's blocks by then; a cell that no open claim wants is not named.
        """
        gone, found = set(dropped), dict[str, int]()
        for claim in self.open(before, gone):
            wanted = FACT_TRIALS if claim.metric is None else self.rule.needed(self.values(claim, before))
            more = max(1, min(self.rule.most, wanted) - self.tried(claim, before))
            for cell in claim.cells - gone:
                found[cell] = max(found.get(cell, 0), before + more)
        return found


def asked_by(suites: Iterable[str]) -> dict[str, Claim]:
    """List the claims that some suites ask about: their own, and for the suite of all claims everybody's."""
    wanted = set(filter(suite.for_claims, suites))
    if not wanted:
        return {}
    return {name: claim for name, (owner, claim) in suite.claims().items() if suite.CLAIMS in wanted or owner in wanted}


def plan(
    claims: Iterable[Claim],
    cells: Collection[str],
    device: str,
    photographs: str,
    impossible: Callable[[Cell], str | None],
    cores: int = 1,
) -> tuple[tuple[Asked, ...], dict[str, str]]:
    """Find the cells of claims among those that are planned."""
    asked, reasons = [], {}
    for claim in (each.on(device) for each in claims):
        decide = _deciding(claim, device, photographs)
        missing = [term.cell for term in decide if term.cell_id not in cells]
        if claim.most_cores and cores > claim.most_cores:
            reasons[claim.id] = f"its sides are for {claim.most_cores} cores at most; this machine has {cores}"
        elif reason := untestable(claim, device) or next(filter(None, map(impossible, missing)), None):
            reasons[claim.id] = reason
        elif missing:
            reasons[claim.id] = "this run leaves out cells of it"
        else:
            beside = (term.cell_id for aside in claim.asides for term in terms(aside.effect, device, photographs))
            checks = (_check(values, device, photographs).cell_id for values in claim.facts)
            weights = {term.cell_id: term.weight for term in decide}
            everything = frozenset((*weights, *beside, *checks)) & frozenset(cells)
            asked.append(Asked(claim.id, claim.effect.metric if claim.effect else None, weights, everything))
    return tuple(asked), reasons


def _deciding(claim: Claim, device: str, photographs: str) -> list[Term]:
    if claim.effect:
        return terms(claim.effect, device, photographs)
    return [_check(claim.facts[0], device, photographs)]


def _check(values: Values, device: str, photographs: str) -> Term:
    cell, _ = cells_of({"mode": "check", **values}, device, photographs)
    return Term(1.0, cell_id(cell), cell)
