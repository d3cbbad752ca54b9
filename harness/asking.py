"""Which claims a sweep still has to ask about: the certain ones make room for the others.

A claim is *certain* when an interval that is far stricter than its verdict needs leaves only one verdict: its level is
that of the smallest p-value among all claims of the run by Holm, with a tenth of the error. Looking after every block
and stopping what is certain then adds little to the chance of a wrong verdict, and large effects, of which there are
many, cost four blocks and not thirty. Everything else goes on as long as the protocol and the budget allow: an interval
that is as narrow as a contrast's has to be may still leave two verdicts.

Pure Python: the parent of a sweep loads neither pandas nor SciPy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from harness.margins import room
from harness.metrics import METRICS
from harness.stopping import Rule, half_width

LEAST_BLOCKS = 4
"""Before anything is certain."""
ERROR = 0.005
"""Of calling any of a run's claims certain that is not; a tenth of what its verdicts allow."""
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
        """Begin with nothing known.

        Args:
            rule: the protocol's: most blocks, and how narrow an interval is wanted, for the forecast.
            asked: the claims whose cells all run.
        """
        self.rule = rule
        self.asked = tuple(asked)
        self.level = 1 - ERROR / max(1, len(self.asked))
        self._wants: defaultdict[str, set[str]] = defaultdict(set)
        for claim in self.asked:
            for cell in claim.weights:
                self._wants[cell].add(claim.metric or "")
        self._logs: defaultdict[tuple[str, str], dict[int, list[float]]] = defaultdict(dict)

    def add(self, trial: Mapping[str, Any]) -> None:
        """Take in a trial that ended well."""
        cell, block = trial["cell_id"], trial["block"]
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

    def certainty(self, claim: Asked, before: int | None = None) -> float:
        """How many times as wide its strict interval might be without leaving its verdict; 1 and more is certain.

        0 where nothing can be told yet, and negative where the estimate lies between two verdicts.
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
        return len(self.values(claim, before)) >= self.rule.most or self.certainty(claim, before) >= 1

    def open(self, before: int, dropped: Iterable[str] = ()) -> list[Asked]:
        """The claims that are not done, the least certain first; those with a cell that only ever failed are gone."""
        gone = set(dropped)
        left = [claim for claim in self.asked if gone.isdisjoint(claim.weights) and not self.done(claim, before)]
        return sorted(left, key=lambda claim: (self.certainty(claim, before), claim.name))

    def expected(self, before: int, dropped: Iterable[str] = ()) -> dict[str, int]:
        """Predict with how many blocks each cell will be done, from what was seen before a block.

        Returns:
            cell_id to its number of blocks; a cell that no open claim wants is not named.
        """
        gone, found = set(dropped), dict[str, int]()
        for claim in self.open(before, gone):
            values = self.values(claim, before)
            wanted = FACT_TRIALS if claim.metric is None else self.rule.needed(values)
            wanted = min(self.rule.most, max(wanted, before + 1))
            for cell in claim.cells - gone:
                found[cell] = max(found.get(cell, 0), wanted)
        return found
