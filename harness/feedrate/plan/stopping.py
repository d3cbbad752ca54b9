"""Which cells a block runs, and in which order.

**Stopping.** Contrasts stop, not cells: a cell whose own interval is narrow runs on while one of its contrasts is wide,
and a cell that no question needs any more is left out of the blocks that follow. A contrast is done when its interval's
half-width is at most the target, after at least the protocol's fewest blocks; never because of what it shows, which
would bias it. Looking after every block from 8 on, intervals were simulated to cover 93 to 95 % where noise is normal
(``tests/simulations.py``), and 92, 86, 73 and 45 % under four other kinds of noise. Claims leave by a rule of their
own, because of what they show (``plan.claim_selection``).

**Order.** At random, with the sides of an effect close to each other: a machine changes from second to second more than
from minute to minute, and what both sides share cancels in their ratio. On the machine of the reference runs a trial's
deviation from its cell's mean correlated with that of a trial 3 s away by 0.26 to 0.33, over a minute away by less than
0.06. The variance of an effect between blocks, over what it would be if its cells scattered independently, was 0.79 to
0.89 in three runs that took all cells at random, 0.59 in one that took them in this order (medians over 24 to 31
claims). Which side comes first is left to chance in every block. Where the sides leave different things behind for the
next trial, half of that difference stays in their ratio.

Pure Python: the parent of a sweep loads no pandas.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean

from feedrate.plan.student import t_quantile
from feedrate.schema.axes import ACTIVITIES, AXES, Axis, Cell, Value


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two cells that differ in one axis."""

    axis: str
    cell_a: str
    """cell_id of the smaller, or earlier, value."""
    cell_b: str

    @property
    def weights(self) -> dict[str, float]:
        """Weights of its cells in the log ratio B ÷ A."""
        return {self.cell_a: -1.0, self.cell_b: 1.0}


def contrasts(cells: Mapping[str, Cell]) -> list[Contrast]:
    """Pair cells that differ in exactly one axis; one that does not apply stands at its default.

    What a trial does rather than how (``ACTIVITIES``) is never contrasted.
    """
    complete = {key: {axis.name: cell.get(axis.name, axis.default) for axis in AXES} for key, cell in cells.items()}
    pairs: list[Contrast] = []
    for axis in AXES:
        groups: dict[str, list[str]] = {}
        for key, cell in cells.items():
            if axis.name in cell and axis.name not in ACTIVITIES:
                rest = {name: value for name, value in complete[key].items() if name != axis.name}
                groups.setdefault(json.dumps(rest, sort_keys=True), []).append(key)
        for group in groups.values():
            group.sort(key=lambda key: _rank(axis, cells[key][axis.name]))
            pairs += [Contrast(axis.name, a, b) for a, b in combinations(group, 2)]
    return pairs


def _rank(axis: Axis, value: Value) -> tuple[float, str]:
    """Where a value stands among the axis' values: numbers ascending, names in the table's order."""
    if not isinstance(value, str):
        return float(value), ""
    names = axis.choices() if axis.choices else ()
    return (float(names.index(value)) if value in names else math.inf), value


def half_width(values: Sequence[float], level: float = 0.95) -> float:
    """Half-width of the Student-t interval of a mean; infinite for fewer than two values."""
    n = len(values)
    return t_quantile(n - 1, level) * deviation(values) / math.sqrt(n) if n > 1 else math.inf


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation of two values or more.

    ``statistics.stdev`` counts in fractions, which was two thirds of the time that choosing what runs next takes.
    """
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def blocks_to(target: float, sd: float, fewest: int, most: int, level: float = 0.95) -> int:
    """Predict how many blocks an interval takes to become as narrow as the target."""
    for n in range(max(2, fewest), most):
        if t_quantile(n - 1, level) * sd / math.sqrt(n) <= target:
            return n
    return most


@dataclass(frozen=True, slots=True)
class Rule:
    """When a contrast is done."""

    fewest: int
    """Blocks before anything may stop."""
    most: int
    target: float
    """Half-width of an interval, in logs."""

    def done(self, values: Sequence[float]) -> bool:
        """Whether paired log ratios (or a cell's logs) are narrow enough."""
        return len(values) >= self.fewest and half_width(values) <= self.target

    def needed(self, values: Sequence[float]) -> int:
        """Blocks that it will take; before a spread can be seen, the fewest."""
        if len(values) < 3:
            return min(self.fewest, self.most)
        return blocks_to(self.target, deviation(values), self.fewest, self.most)


class BlockLogs:
    """Logs of a metric by cell and block; several trials of a cell in one block count as their mean."""

    def __init__(self) -> None:
        self._logs: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, cell: str, block: int, value: float) -> None:
        """Add a trial that ended well."""
        self._logs[cell][block].append(math.log(value))

    def sums(self, weights: Mapping[str, float], before: int | None = None) -> list[float]:
        """Weighted sums of the cells' logs in the blocks that have all cells, up to a block if one is given."""
        columns = [
            {block: fmean(logs) for block, logs in self._logs[cell].items() if before is None or block < before}
            for cell in weights
        ]
        shared = sorted(set[int].intersection(*map(set, columns)))
        return [
            sum(weight * column[block] for weight, column in zip(weights.values(), columns, strict=True))
            for block in shared
        ]


class ContrastTracker:
    """How far a run has come with the contrasts of the cells that its matrix asks for."""

    def __init__(self, rule: Rule, cells: Mapping[str, Cell], ceilings: Mapping[str, Sequence[str]]) -> None:
        """Begin with no trial of the cells that are compared, by id; a cell's ceilings run as long as it does."""
        self.rule, self._cells, self._ceilings = rule, cells, ceilings
        self.pairs = contrasts(cells)
        self.logs = BlockLogs()

    def values(self, pair: Contrast, before: int | None = None) -> list[float]:
        """Log ratios B ÷ A of the blocks in which both ended well."""
        return self.logs.sums(pair.weights, before)

    def expected(self, before: int, dropped: Iterable[str]) -> dict[str, int]:
        """Predict with how many blocks each cell will be done, from what was measured before a block.

        So many or fewer mean that it is done. Nothing waits for the contrasts of what was dropped, as it only failed.
        """
        gone = set(dropped)
        asked = [pair.weights for pair in self.pairs if gone.isdisjoint(pair.weights)]
        alone = self._cells.keys() - {cell for weights in asked for cell in weights}
        blocks = dict.fromkeys(self._cells, 0)
        for weights in (*asked, *({cell: 1.0} for cell in alone)):
            values = self.logs.sums(weights, before)
            needed = 0 if self.rule.done(values) else min(self.rule.most, max(self.rule.needed(values), before + 1))
            blocks |= {cell: max(blocks[cell], needed) for cell in weights}
        for cell, ceilings in self._ceilings.items():
            for ceiling in ceilings:
                blocks[ceiling] = max(blocks.get(ceiling, 0), blocks[cell])
        return {cell: needed for cell, needed in blocks.items() if cell not in gone}


ORDERING = 1
"""Changes whenever the same arguments give another order: a run that was interrupted resumes in its own order alone."""
KEPT = 0.9
"""What is left, one trial later, of a trial's wish to have another close to it: fits trials of one to two seconds."""
WISH = 0.02
"""Least wish that is heeded."""


def side_by_side(order: Sequence[str], effects: Iterable[Mapping[str, float]], chance: random.Random) -> list[str]:
    """Bring the sides of effects close to each other.

    Each trial is followed by the one that most wishes to be near those just before it: sides of opposite sign in one
    effect attract each other, sides of equal sign repel, as their shared noise adds up. How strongly is their share in
    the effect's variance. Where nothing is wished for the random order goes on.

    Args:
        order: names of cells, at random.
        effects: cell to its weight in a sum of logs; cells that are not in ``order`` are passed over.
        chance: tosses up whether the order or its reverse is taken: a side that several effects share is sought by all
            others, and would else come second more often than first.
    """
    links: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for weights in effects:
        total = sum(weight * weight for weight in weights.values())
        for (one, weight), (other, against) in product(weights.items(), repeat=2):
            if one != other:
                links[one][other] -= weight * against / total
    if not links:
        return list(order)
    left, arranged = dict.fromkeys(order), list[str]()
    wishes: defaultdict[str, float] = defaultdict(float)
    while left:
        following = max(left, key=lambda cell: wishes[cell])
        if wishes[following] <= WISH:
            following = next((cell for cell in left if wishes[cell] > -WISH), following)
        arranged.append(following)
        del left[following]
        for cell in wishes:
            wishes[cell] *= KEPT
        for cell, strength in links[following].items():
            wishes[cell] += strength
    return arranged[:: chance.choice((1, -1))]
