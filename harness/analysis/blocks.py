"""Log throughput by block, and ratios paired by block: the arithmetic under every estimate and every contrast.

Steps within a trial are not independent, trials of different blocks nearly are: the block is the unit of repetition and
of pairing. Ratios of throughputs are means of differences of logs, their intervals Student's t over blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtrit

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
KEYS = ["run_id", "cell_id"]
"""What tells one cell of one run."""


def half_width(sd: Any, n: Any) -> Floats:
    """Half-width of the 95 % Student-t interval of a mean.

    Args:
        sd: standard deviations of the single values (n - 1 in the denominator), any shape.
        n: how many values, same shape.

    Returns:
        Same shape; NaN where n < 2: one value has no spread.
    """
    counts = np.asarray(n, dtype=np.float64)
    usable = np.where(counts >= 2, counts, np.nan)
    return np.asarray(stdtrit(usable - 1, 0.5 + CONFIDENCE / 2) * np.asarray(sd, dtype=np.float64) / np.sqrt(usable))


def good(trials: pd.DataFrame) -> pd.DataFrame:
    """Keep the trials that ended well and whose throughput is a positive number."""
    rate = trials["samples_per_s"].astype("float64")
    return trials[(trials["outcome"] == "ok") & (rate > 0) & np.isfinite(rate)]


class Blocks:
    """Mean log throughput of each cell in each block of its run (a control cell runs several times in a block)."""

    def __init__(self, trials: pd.DataFrame) -> None:
        """Arrange the trials of any number of runs.

        Args:
            trials: columns ``run_id``, ``cell_id``, ``block``, ``outcome``, ``samples_per_s``.
        """
        rows = pd.MultiIndex.from_frame(trials[KEYS]).unique()
        columns = np.unique(trials["block"].to_numpy(dtype=np.int64))
        self._row = {key: position for position, key in enumerate(rows)}
        self._logs = np.full((len(rows), len(columns)), np.nan)
        self._tried = np.zeros(self._logs.shape, dtype=bool)
        self._tried[self._places(trials, columns)] = True
        ended = good(trials)
        at = self._places(ended, columns)
        total, count = np.zeros(self._logs.shape), np.zeros(self._logs.shape)
        np.add.at(total, at, np.log(ended["samples_per_s"].to_numpy(dtype=np.float64)))
        np.add.at(count, at, 1)
        np.divide(total, count, out=self._logs, where=count > 0)

    def _places(self, trials: pd.DataFrame, columns: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.intp], ...]:
        rows = np.fromiter((self._row[key] for key in zip(trials["run_id"], trials["cell_id"], strict=True)), np.intp)
        return rows, np.searchsorted(columns, trials["block"].to_numpy(dtype=np.int64))

    def ratios(self, run_ids: Sequence[str], cells_a: Sequence[str], cells_b: Sequence[str]) -> pd.DataFrame:
        """Compare pairs of cells, each pair within one run.

        Args:
            run_ids: the run of each pair.
            cells_a: its cell A.
            cells_b: its cell B.

        Returns:
            A row a pair, in their order: ``ratio`` (B ÷ A, the exponential of the mean paired log ratio), ``lo`` and
            ``hi`` (95 % Student-t interval, NaN when n < 2), ``n`` (blocks in which both ended well), ``dropped``
            (blocks in which both were tried and one or both failed), ``sd_log`` (between the paired log ratios).
        """
        first = [self._row[key] for key in zip(run_ids, cells_a, strict=True)]
        second = [self._row[key] for key in zip(run_ids, cells_b, strict=True)]
        differences = self._logs[second] - self._logs[first]
        paired = np.isfinite(differences)
        n = paired.sum(axis=1)
        mean = np.divide(np.where(paired, differences, 0.0).sum(axis=1), n, out=np.full(len(n), np.nan), where=n > 0)
        squares = np.where(paired, (differences - mean[:, None]) ** 2, 0.0).sum(axis=1)
        sd = np.sqrt(np.divide(squares, n - 1, out=np.full(len(n), np.nan), where=n > 1))
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
