"""When a question is answered well enough: which contrasts are done, and which cells therefore still run.

Contrasts stop, not cells: a cell whose own interval is narrow runs on while one of its contrasts is wide, and a cell
that no question needs any more is left out of the blocks that follow. A contrast is done when its interval's half-width
is at most the target, after at least the protocol's fewest blocks; never because of what it shows, which would bias it.
Looking after every block from 8 on, intervals were simulated to cover 93 to 95 % (``analysis.simulate``). A half-width
of 3 % leaves a true effect of 5 % little room over the verdict's margin of 1 %: who claims so little wants about 2.2 %.

Pure Python: the parent of a sweep loads neither pandas nor SciPy.

In which order the trials of a block run: at random, and the sides of an effect close to each other.

A machine changes from second to second more than from minute to minute. On the machine of the reference runs what a
trial was off its cell's mean by correlated with that of a trial 3 s away by 0.26 to 0.33, 12 s away by 0.12 to 0.22,
and over a minute away by less than 0.06 (runs 20261121T194213Z-a8b3, 20261121T214023Z-c819 and 20261122T004530Z-d723,
some 1,100 trials each). What both sides of a comparison share falls out of their ratio, so that trials run side by side
tell more than trials a block apart. Which side comes first is left to chance in every block: a trial's place favours
neither. Where the sides leave different things behind for the next trial, half of that difference stays in their ratio.

What it gives: the variance of an effect between blocks, over what it would be if its cells scattered independently, was
0.79, 0.82 and 0.89 in those runs, which took all cells at random, and 0.59 in 20261122T021316Z-18f6, which took them so
(medians over 24 to 31 claims). Those three lie in the repository's history.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from statistics import fmean

from feedrate.schema.axes import AXES, NO_KNOBS, Axis, Cell, Value

Logs = Mapping[int, float]
"""Block to the log of a cell's throughput in it."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two cells that differ in one axis."""

    axis: str
    cell_a: str
    """cell_id of the smaller, or earlier, value."""
    cell_b: str


def contrasts(cells: Mapping[str, Cell]) -> list[Contrast]:
    """Pair cells that differ in exactly one axis; one that does not apply stands at its default.

    ``mode`` and ``step`` say what a trial does rather than how, and are never contrasted.
    """
    whole = {key: {axis.name: cell.get(axis.name, axis.default) for axis in AXES} for key, cell in cells.items()}
    found: list[Contrast] = []
    for axis in AXES:
        groups: dict[str, list[str]] = {}
        for key, cell in cells.items():
            if axis.name in cell and axis.name not in NO_KNOBS:
                rest = {name: value for name, value in whole[key].items() if name != axis.name}
                groups.setdefault(json.dumps(rest, sort_keys=True), []).append(key)
        for group in groups.values():
            group.sort(key=lambda key: _rank(axis, cells[key][axis.name]))
            found += [Contrast(axis.name, a, b) for a, b in combinations(group, 2)]
    return found


def _rank(axis: Axis, value: Value) -> tuple[float, str]:
    """Where a value stands among the axis' values: numbers ascending, names in the table's order."""
    if not isinstance(value, str):
        return float(value), ""
    known = axis.choices() if axis.choices else ()
    return (float(known.index(value)) if value in known else math.inf), value


@lru_cache(maxsize=1024)
def t_quantile(df: int, level: float = 0.95) -> float:
    """Two-sided quantile of Student's t for a whole number of degrees of freedom.

    The distribution function has a closed form there (Abramowitz and Stegun, 26.7.3 and 26.7.4); it is inverted by
    bisection.
    """
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, df) < level else (low, middle)
    return high


def _inside(t: float, df: int) -> float:
    """Probability that Student's t lies within ±t."""
    angle = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    term, total = (1.0, 1.0) if df % 2 == 0 else (cosine, cosine if df > 1 else 0.0)
    for k in range(2 if df % 2 == 0 else 3, df - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return sine * total if df % 2 == 0 else 2 / math.pi * (angle + sine * total)


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
        """Whether enough is known of paired log ratios (or of a cell's logs)."""
        return len(values) >= self.fewest and half_width(values) <= self.target

    def needed(self, values: Sequence[float]) -> int:
        """Blocks that it will take; before a spread can be seen, the fewest."""
        if len(values) < 3:
            return min(self.fewest, self.most)
        return blocks_to(self.target, deviation(values), self.fewest, self.most)


@dataclass(slots=True)
class Questions:
    """What a run wants to know of which cells, and how far that has come."""

    rule: Rule
    asked: Mapping[str, Cell]
    """The cells that the matrix asks for."""
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Cell to its ceilings, which run as long as it does."""
    pairs: list[Contrast] = field(init=False)
    _logs: dict[str, dict[int, list[float]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.pairs = contrasts(self.asked)

    def add(self, cell: str, block: int, samples_per_s: float) -> None:
        """Take in a trial that ended well."""
        self._logs.setdefault(cell, {}).setdefault(block, []).append(math.log(samples_per_s))

    def values(self, pair: Contrast, before: int | None = None) -> list[float]:
        """Log ratios B ÷ A of the blocks in which both ended well, those before a block only if one is given."""
        a, b = (self._means(cell, before) for cell in (pair.cell_a, pair.cell_b))
        return [b[block] - a[block] for block in sorted(a.keys() & b.keys())]

    def alone(self, cell: str, before: int | None = None) -> list[float]:
        """A cell's own logs by block."""
        return list(self._means(cell, before).values())

    def _means(self, cell: str, before: int | None) -> dict[int, float]:
        logs = self._logs.get(cell, {})
        return {block: fmean(values) for block, values in logs.items() if before is None or block < before}

    def expected(self, before: int, dropped: Iterable[str]) -> dict[str, int]:
        """Predict with how many blocks each cell will be done, from what was seen before a block.

        Args:
            before: the block that is about to begin.
            dropped: cells that only ever failed; nothing waits for their contrasts.

        Returns:
            cell_id to its number of blocks; ``before`` or less means that it is done.
        """
        gone = set(dropped)
        found = dict.fromkeys(self.asked, 0)
        contrasted: set[str] = set()
        for pair in self.pairs:
            if gone.isdisjoint((pair.cell_a, pair.cell_b)):
                contrasted |= {pair.cell_a, pair.cell_b}
                wanted = self._wanted(self.values(pair, before), before)
                for cell in (pair.cell_a, pair.cell_b):
                    found[cell] = max(found[cell], wanted)
        for cell in found.keys() - contrasted:
            found[cell] = self._wanted(self.alone(cell, before), before)
        for cell, ceilings in self.needs.items():
            for ceiling in ceilings:
                found[ceiling] = max(found.get(ceiling, 0), found[cell])
        return {cell: wanted for cell, wanted in found.items() if cell not in gone}

    def _wanted(self, values: Sequence[float], before: int) -> int:
        if self.rule.done(values):
            return 0
        return min(self.rule.most, max(self.rule.needed(values), before + 1))


ORDERING = 1
"""Changes whenever the same arguments give another order: a run that was interrupted resumes in its own order alone."""
KEPT = 0.9
"""What is left, one trial later, of a trial's wish to have another close to it: fits trials of one to two seconds."""
WISH = 0.02
"""Least wish that is heeded."""


def side_by_side(order: Sequence[str], effects: Iterable[Mapping[str, float]], chance: random.Random) -> list[str]:
    """Bring the sides of effects close to each other.

    Each trial is followed by the one that most wishes to be near those just before it: sides of opposite sign in one
    effect attract each other, sides of equal sign repel, as their shared noise adds up. Where nothing is wished for the
    random order goes on.

    Args:
        order: names of cells, at random.
        effects: cell to its weight in a sum of log throughputs; weights of one effect add up to 0, and cells that are
            not in ``order`` are passed over.
        chance: tosses up whether the found order or its reverse is taken: a side that several effects share is sought
            by all others, and would else come second more often than first.

    Returns:
        The same names; without effects in the same order.
    """
    if not (links := _links(effects)):
        return list(order)
    left, found = dict.fromkeys(order), list[str]()
    wishes: defaultdict[str, float] = defaultdict(float)
    while left:
        following = max(left, key=lambda cell: wishes[cell])
        if wishes[following] <= WISH:
            following = next((cell for cell in left if wishes[cell] > -WISH), following)
        found.append(following)
        del left[following]
        for cell in wishes:
            wishes[cell] *= KEPT
        for cell, strength in links[following].items():
            wishes[cell] += strength
    return found[:: chance.choice((1, -1))]


def _links(effects: Iterable[Mapping[str, float]]) -> defaultdict[str, dict[str, float]]:
    """How strongly cells wish to be near each other, over all effects: their shares in the effects' variances."""
    links: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for weights in effects:
        total = sum(weight * weight for weight in weights.values())
        for one, weight in weights.items():
            for other, against in weights.items():
                if one != other:
                    links[one][other] = links[one].get(other, 0.0) - weight * against / total
    return links
