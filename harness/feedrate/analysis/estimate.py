"""The one estimate: a value with the ends of its 95 % interval, and how many values it rests on.

Steps within a trial are not independent, trials of different blocks nearly are: n counts blocks where nothing else is
said. Rates and ratios are means of logs, brought back; intervals are Student's t. ``as_columns`` does for frames what
``Estimate`` does for one number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from feedrate.plan.student import t_quantile
from feedrate.schema import words

Floats = npt.NDArray[np.float64]
Kind = Literal["number", "ratio", "share", "change"]
"""What a value is, for ``schema.words``: a rate or a count, a ratio, a share of one, a change in per cent."""

CONFIDENCE = 0.95
MOST_BLOCKS = 2**20
"""What would take more repetitions than this is out of reach."""
RATIO = ("ratio", "lo", "hi", "n")
RATE = ("samples_per_s", "lo", "hi", "n")


def elementwise(function: Callable[..., float], *values: Any) -> Floats:
    """Apply a function of numbers to arrays that are broadcast together."""
    arrays = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in values))
    results = [function(*numbers) for numbers in zip(*(array.ravel().tolist() for array in arrays), strict=True)]
    return np.reshape(np.array(results, dtype=np.float64), arrays[0].shape)


def t_half_width(error: Any, df: Any, level: Any = CONFIDENCE) -> Floats:
    """Half-width of a Student-t interval from a standard error and its degrees of freedom; NaN without any."""
    return np.asarray(elementwise(t_quantile, df, level) * np.asarray(error, dtype=np.float64))


def half_width(sd: Any, n: Any, level: Any = CONFIDENCE) -> Floats:
    """Half-width of the Student-t interval of a mean of n values of standard deviation sd (n - 1); NaN where n < 2."""
    counts = np.asarray(n, dtype=np.float64)
    usable = np.where(counts >= 2, counts, np.nan)
    return t_half_width(np.asarray(sd, dtype=np.float64) / np.sqrt(usable), usable - 1, level)


def blocks_for(target: Any, sd: Any, level: Any = CONFIDENCE) -> Floats:
    """How many values it takes until the interval of their mean is as narrow as a target; infinite where too many."""
    given = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (target, sd, level)))
    blocks, asked = np.full(given[0].shape, np.nan), ~(np.isnan(given[0]) | np.isnan(given[1]))
    target, sd, level = (values[asked] for values in given)
    few, many = np.full(target.shape, 2), np.full(target.shape, MOST_BLOCKS)
    while (few < many).any():
        middle = (few + many) // 2
        enough = half_width(sd, middle, level) <= target
        few, many = np.where(enough, few, middle + 1), np.where(enough, middle, many)
    blocks[asked] = np.where(half_width(sd, many, level) <= target, many.astype(np.float64), np.inf)
    return blocks


class Moments(NamedTuple):
    """Mean, spread and number of the finite values of each row."""

    mean: Any
    """NaN where n is 0."""
    sd: Any
    """Standard deviation, n - 1 in the denominator; NaN where n < 2."""
    n: Any


def moments(values: Floats) -> Moments:
    """Mean, spread and number of the finite values along the last axis."""
    finite = np.isfinite(values)
    n = finite.sum(axis=-1)
    mean = np.divide(np.where(finite, values, 0.0).sum(axis=-1), n, out=np.full(n.shape, np.nan), where=n > 0)
    squares = np.where(finite, (values - mean[..., None]) ** 2, 0.0).sum(axis=-1)
    return Moments(mean, np.sqrt(np.divide(squares, n - 1, out=np.full(n.shape, np.nan), where=n > 1)), n)


def columns_of(name: str) -> tuple[str, str, str, str]:
    """Name the columns of an estimate in a frame whose other estimates rest on the same n."""
    return name, f"{name}_lo", f"{name}_hi", "n"


def as_columns(
    names: Sequence[str], spread: Moments, back: Callable[[Any], Any] = np.exp, half: Any = None
) -> dict[str, Any]:
    """Give value, low end, high end and n, each under its name, from means and spreads.

    Args:
        names: of the four columns.
        spread: of logs, or of what ``back`` brings back else.
        back: from the scale of the means to that of the values.
        half: of the interval, where it is not that of a mean of n values.
    """
    half = half_width(spread.sd, spread.n) if half is None else half
    ends = back(spread.mean), back(spread.mean - half), back(spread.mean + half)
    return dict(zip(names, (*ends, spread.n), strict=True))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    """NaN where nothing was measured."""
    low: float
    """Ends of the interval; NaN where fewer than two values give none."""
    high: float
    n: int
    kind: Kind = "number"

    @classmethod
    def of_moments(cls, mean: float, sd: float, n: int, kind: Kind = "ratio", half: float | None = None) -> Estimate:
        """Bring a mean of logs back; ``half`` as of :func:`as_columns`."""
        value, low, high, _ = as_columns(RATIO, Moments(mean, sd, n), half=half).values()
        return cls(float(value), float(low), float(high), int(n), kind)

    @classmethod
    def of_logs(cls, logs: Floats, kind: Kind = "ratio") -> Estimate:
        """Take the geometric mean of values by their logs, one a block; those that are not finite do not count."""
        return cls.of_moments(*moments(logs), kind)

    @classmethod
    def of_row(cls, row: Mapping[Any, Any], names: Sequence[str] = RATE, kind: Kind = "number") -> Estimate:
        """Read it from the columns of a frame; null is NaN."""
        *ends, n = (row[name] for name in names)
        value, low, high = (math.nan if end is None else float(end) for end in ends)
        return cls(value, low, high, int(n), kind)

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def text(self, unit: str = "", write: words.Write | None = None, n: int | str | None = None) -> str:
        """Write it as its kind is written; arguments as of ``words.estimate``."""
        return words.estimate((self.value, self.low, self.high), self.kind, unit, n, write)

    def with_n(self, unit: str = "", write: words.Write | None = None) -> str:
        """Write it with the number of values that it rests on."""
        return self.text(unit, write, self.n)

    def through(self, turn: Callable[[float], float], kind: Kind) -> Estimate:
        """Put value and ends through a function that always rises, or always falls."""
        value, low, high = (turn(end) for end in (self.value, self.low, self.high))
        return Estimate(value, *((high, low) if high < low else (low, high)), self.n, kind)

    def row(self, names: Sequence[str] = RATIO) -> dict[str, Any]:
        """Give value, low, high and n under the names of a frame's columns."""
        return dict(zip(names, (self.value, self.low, self.high, self.n), strict=True))
