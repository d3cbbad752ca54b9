"""When a question is answered well enough: which contrasts are done, and which cells therefore still run.

Contrasts stop, not cells: a cell whose own interval is narrow runs on while one of its contrasts is wide, and a cell
that no question needs any more is left out of the blocks that follow. A contrast is done when its interval's half-width
is at most the target, after at least the protocol's fewest blocks; never because of what it shows, which would bias it.
Looking after every block from 8 on, intervals were simulated to cover 93 to 95 % (``analysis.simulate``). A half-width
of 3 % leaves a true effect of 5 % little room over the verdict's margin of 1 %: who claims so little wants about 2.2 %.

Pure Python: the parent of a sweep loads neither pandas nor SciPy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from statistics import fmean

from harness.axes import AXES, NO_KNOBS, Axis, Cell, Value

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

    Args:
        cells: cell_id to the axes that apply.
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

    Args:
        df: degrees of freedom, at least 1.
        level: probability of what lies within.
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
    """Predict how many blocks an interval takes to become as narrow as the target.

    Args:
        target: half-width, in logs.
        sd: spread of the single log ratios.
        fewest: never less.
        most: never more.
        level: probability of what lies within the interval.
    """
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
