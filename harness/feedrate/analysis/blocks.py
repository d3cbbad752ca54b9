"""Log throughput by block, and ratios paired by block: the arithmetic under every estimate and every contrast.

Steps within a trial are not independent, trials of different blocks nearly are: the block is the unit of repetition and
of pairing. Ratios of throughputs are means of differences of logs, their intervals Student's t over blocks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.estimate import RATIO, Floats, Moments, as_columns, moments

Answer = TypeVar("Answer")

KEYS = ["run_id", "cell_id"]
"""Columns that identify one cell of one run."""


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


def successful(trials: pd.DataFrame) -> pd.DataFrame:
    """Keep the trials that ended well and whose throughput is a positive number."""
    rate = trials["samples_per_s"].astype("float64")
    ended = (trials["outcome"] == "ok") & (rate > 0) & np.isfinite(rate)
    return trials if ended.all() else trials[ended]


def by_block(trials: pd.DataFrame, values: pd.Series) -> pd.Series:
    """Values of trials by cell and block (index ``KEYS`` and block), those of one block averaged."""
    return values.groupby([trials[key] for key in (*KEYS, "block")]).mean()


def over_blocks(values: pd.Series, names: Sequence[str], back: Callable[[Any], Any] = np.asarray) -> pd.DataFrame:
    """Mean of each cell over blocks, of values as :func:`by_block` gives them; ``np.exp`` brings logs back.

    Returns:
        The columns of an estimate under their ``names``, a row a cell (index ``KEYS``).
    """
    groups = values.groupby(level=KEYS)
    spread = Moments(groups.mean(), groups.std(), groups.count())
    return pd.DataFrame(as_columns(names, spread, back), spread.mean.index)


class Blocks:
    """Mean log throughput of each cell in each block of its run (a control cell runs several times in a block)."""

    def __init__(self, trials: pd.DataFrame) -> None:
        trials = trials[[*KEYS, "block", "outcome", "samples_per_s"]]  # selecting rows of many columns is slow
        cells = pd.MultiIndex.from_frame(trials[KEYS]).unique()
        blocks = np.unique(trials["block"].to_numpy(dtype=np.int64))
        self._row = {key: position for position, key in enumerate(cells)}
        shape = len(cells), len(blocks)

        def places(frame: pd.DataFrame) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
            rows = np.fromiter((self._row[key] for key in zip(frame["run_id"], frame["cell_id"], strict=True)), np.intp)
            return rows, np.searchsorted(blocks, frame["block"].to_numpy(dtype=np.int64))

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

    def tried(self, run_ids: Sequence[str], cell_ids: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Whether a cell has a trial in a block, however that ended: cells × blocks."""
        return self._tried[self._rows(run_ids, cell_ids)]

    def ratios(self, run_ids: Sequence[str], cells_a: Sequence[str], cells_b: Sequence[str]) -> pd.DataFrame:
        """Compare pairs of cells, each pair within one run.

        Returns:
            A row a pair, in their order: ``ratio`` (B ÷ A, the exponential of the mean paired log ratio) with its
            interval ``lo``, ``hi``, ``n`` (blocks in which both ended well), ``dropped`` (blocks in which both were
            tried and one or both failed), ``sd_log`` (between the paired log ratios).
        """
        first, second = self._rows(run_ids, cells_a), self._rows(run_ids, cells_b)
        spread = moments(self._logs[second] - self._logs[first])
        dropped = (self._tried[first] & self._tried[second]).sum(axis=1) - spread.n
        return pd.DataFrame({**as_columns(RATIO, spread), "dropped": dropped, "sd_log": spread.sd})

    def _rows(self, run_ids: Sequence[str], cell_ids: Sequence[str]) -> list[int]:
        return [self._row[key] for key in zip(run_ids, cell_ids, strict=True)]


@memoized
def blocks_of(trials: pd.DataFrame) -> Blocks:
    """``Blocks(trials)``, remembered."""
    return Blocks(trials)
