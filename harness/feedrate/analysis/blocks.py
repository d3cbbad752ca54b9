"""Log throughput by block, and ratios paired by block: the arithmetic under every estimate and every contrast.

Steps within a trial are not independent, trials of different blocks nearly are: the block is the unit of repetition and
of pairing. Ratios of throughputs are means of differences of logs, their intervals Student's t over blocks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtrit

Floats = npt.NDArray[np.float64]
Answer = TypeVar("Answer")

CONFIDENCE = 0.95
KEYS = ["run_id", "cell_id"]
"""Columns that identify one cell of one run."""
MOST_BLOCKS = 2**20
"""What would take more repetitions than this is out of reach."""


def memoized(function: Callable[[pd.DataFrame], Answer]) -> Callable[[pd.DataFrame], Answer]:
    """Let a function of one frame remember its answers: charts, tables and sentences ask the same of the same records.

    Frames are identified by ``id``, so neither a frame nor its answer may be changed in place. An answer lives as long
    as its frame, and must therefore not refer to it.
    """
    answers: dict[int, tuple[weakref.ref[pd.DataFrame], Answer]] = {}

    @wraps(function)
    def remember(frame: pd.DataFrame) -> Answer:
        key = id(frame)
        if key not in answers:
            answer = function(frame)
            answers[key] = weakref.ref(frame, lambda _: answers.pop(key, None)), answer
        return answers[key][1]

    return remember


def t_half_width(error: Any, df: Any, level: Any = CONFIDENCE) -> Floats:
    """Half-width of a Student-t interval from a standard error and its degrees of freedom; NaN without any."""
    freedom = np.asarray(df, dtype=np.float64)
    quantile = stdtrit(np.where(freedom > 0, freedom, np.nan), 0.5 + np.asarray(level, dtype=np.float64) / 2)
    return np.asarray(quantile * np.asarray(error, dtype=np.float64))


def half_width(sd: Any, n: Any, level: Any = CONFIDENCE) -> Floats:
    """Half-width of the Student-t interval of a mean of n values of standard deviation sd (n - 1); NaN where n < 2."""
    counts = np.asarray(n, dtype=np.float64)
    usable = np.where(counts >= 2, counts, np.nan)
    return t_half_width(np.asarray(sd, dtype=np.float64) / np.sqrt(usable), usable - 1, level)


def blocks_for(target: Any, sd: Any, level: Any = CONFIDENCE) -> Floats:
    """How many values it takes until the interval of their mean is as narrow as a target; infinite where too many."""
    target, sd, level = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in (target, sd, level)))
    few, many = np.full(target.shape, 2), np.full(target.shape, MOST_BLOCKS)
    while (few < many).any():
        middle = (few + many) // 2
        enough = half_width(sd, middle, level) <= target
        few, many = np.where(enough, few, middle + 1), np.where(enough, middle, many)
    needed = np.where(half_width(sd, many, level) <= target, many.astype(np.float64), np.inf)
    return np.where(np.isnan(target) | np.isnan(sd), np.nan, needed)


class Moments(NamedTuple):
    """Mean, spread and number of the finite values of each row."""

    mean: Floats
    """NaN where n is 0."""
    sd: Floats
    """Standard deviation, n - 1 in the denominator; NaN where n < 2."""
    n: npt.NDArray[np.int64]


def moments(values: Floats) -> Moments:
    """Mean, spread and number of the finite values along the last axis."""
    known = np.isfinite(values)
    n = known.sum(axis=-1)
    mean = np.divide(np.where(known, values, 0.0).sum(axis=-1), n, out=np.full(n.shape, np.nan), where=n > 0)
    squares = np.where(known, (values - mean[..., None]) ** 2, 0.0).sum(axis=-1)
    return Moments(mean, np.sqrt(np.divide(squares, n - 1, out=np.full(n.shape, np.nan), where=n > 1)), n)


def successful(trials: pd.DataFrame) -> pd.DataFrame:
    """Keep the trials that ended well and whose throughput is a positive number."""
    rate = trials["samples_per_s"].astype("float64")
    return trials[(trials["outcome"] == "ok") & (rate > 0) & np.isfinite(rate)]


def by_block(trials: pd.DataFrame, values: pd.Series) -> pd.Series:
    """Values of trials by cell and block (index ``KEYS`` and block), those of one block averaged."""
    return values.groupby([trials[key] for key in (*KEYS, "block")]).mean()


def over_blocks(values: pd.Series, name: str, back: Callable[[Any], Any] = np.asarray) -> pd.DataFrame:
    """Mean of each cell over blocks, of values as :func:`by_block` gives them; ``np.exp`` brings logs back.

    Returns:
        ``name``, ``<name>_lo``, ``<name>_hi`` and ``n``, a row a cell (index ``KEYS``).
    """
    groups = values.groupby(level=KEYS)
    mean, n = groups.mean(), groups.count()
    half = half_width(groups.std(), n)
    return pd.DataFrame(
        {name: back(mean), f"{name}_lo": back(mean - half), f"{name}_hi": back(mean + half), "n": n}, mean.index
    )


class Blocks:
    """Mean log throughput of each cell in each block of its run (a control cell runs several times in a block)."""

    def __init__(self, trials: pd.DataFrame) -> None:
        trials = trials[[*KEYS, "block", "outcome", "samples_per_s"]]  # selecting rows of many columns is slow
        cells = pd.MultiIndex.from_frame(trials[KEYS]).unique()
        blocks = np.unique(trials["block"].to_numpy(dtype=np.int64))
        self._row = {key: position for position, key in enumerate(cells)}
        shape = len(cells), len(blocks)

        def places(part: pd.DataFrame) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
            rows = np.fromiter((self._row[key] for key in zip(part["run_id"], part["cell_id"], strict=True)), np.intp)
            return rows, np.searchsorted(blocks, part["block"].to_numpy(dtype=np.int64))

        self._tried = np.zeros(shape, dtype=bool)
        self._tried[places(trials)] = True
        ended = successful(trials)
        at = places(ended)
        total, count = np.zeros(shape), np.zeros(shape)
        np.add.at(total, at, np.log(ended["samples_per_s"].to_numpy(dtype=np.float64)))
        np.add.at(count, at, 1)
        self._logs: Floats = np.divide(total, count, out=np.full(shape, np.nan), where=count > 0)

    def logs(self, run_ids: Sequence[str], cell_ids: Sequence[str]) -> Floats:
        """Log throughput of cells by block: float64, cells × blocks; NaN where no trial ended well."""
        return self._logs[self._rows(run_ids, cell_ids)]

    def ratios(self, run_ids: Sequence[str], cells_a: Sequence[str], cells_b: Sequence[str]) -> pd.DataFrame:
        """Compare pairs of cells, each pair within one run.

        Returns:
            A row a pair, in their order: ``ratio`` (B ÷ A, the exponential of the mean paired log ratio) with its
            interval ``lo``, ``hi``, ``n`` (blocks in which both ended well), ``dropped`` (blocks in which both were
            tried and one or both failed), ``sd_log`` (between the paired log ratios).
        """
        first, second = self._rows(run_ids, cells_a), self._rows(run_ids, cells_b)
        mean, sd, n = moments(self._logs[second] - self._logs[first])
        half = half_width(sd, n)
        return pd.DataFrame(
            {
                "ratio": np.exp(mean),
                "lo": np.exp(mean - half),
                "hi": np.exp(mean + half),
                "n": n,
                "dropped": (self._tried[first] & self._tried[second]).sum(axis=1) - n,
                "sd_log": sd,
            }
        )

    def _rows(self, run_ids: Sequence[str], cell_ids: Sequence[str]) -> list[int]:
        return [self._row[key] for key in zip(run_ids, cell_ids, strict=True)]


@memoized
def blocks_of(trials: pd.DataFrame) -> Blocks:
    """``Blocks(trials)``, remembered."""
    return Blocks(trials)
