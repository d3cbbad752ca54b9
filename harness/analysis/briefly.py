"""The best setting of each task of very many runs: what can be said of a run without looking at it alone.

It is what ``summary.best_cells`` calls the best, without the set of cells that cannot be told from it, what holds it
back, and the comparison with PyTorch's defaults: those take each run's blocks one by one.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from harness.analysis.contrasts import keys_of
from harness.analysis.summary import CONDITIONS

_ASKED_OF = ("train", "load")
"""Modes whose settings can be chosen."""


def best(cells: pd.DataFrame) -> pd.DataFrame:
    """Take the fastest cell of each task of each run.

    Args:
        cells: rows of ``explored.explored`` of any number of runs, with ``asked``: whether the matrix asked for the
            cell.

    Returns:
        The rows of the fastest cells, in their order. Cells that only serve others, replicas and cells without an
        estimate are no candidates.
    """
    chosen = cells["asked"] & cells["mode"].isin(_ASKED_OF) & cells["replica"].fillna(0).eq(0) & cells["n"].gt(0)
    candidates = cells[chosen.to_numpy(dtype=bool)]
    if not len(candidates):
        return candidates
    task = np.zeros(len(candidates), dtype=np.int64)
    for key in keys_of(candidates, ("run_id", "device", *CONDITIONS)):
        codes, names = pd.factorize(key, use_na_sentinel=False)
        task, _ = pd.factorize(task * len(names) + codes)
    rates = candidates["samples_per_s"].to_numpy(dtype=np.float64)
    fastest = np.lexsort((np.arange(len(rates)), -rates, task))
    first = np.ones(len(rates), dtype=bool)
    first[1:] = np.diff(task[fastest]) != 0
    return candidates.iloc[np.sort(fastest[first])]
