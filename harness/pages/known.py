"""Every measure of every cell of all runs, read and estimated in parts, so that many runs fit into memory.

Explore shows all of it; short pages take the best settings from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness import store_many
from harness.analysis.blocks import KEYS
from harness.analysis.explored import COLUMNS, explored
from harness.pages import apart
from harness.store import StoredRun

_PART = 200
"""Runs that are read together."""
_ALONE = 3 * _PART
"""With more runs than these, further processes are worth their start."""


def cells(runs: Sequence[StoredRun]) -> pd.DataFrame:
    """Estimate every cell of every run.

    Args:
        runs: any number of them.

    Returns:
        The columns of ``analysis.explored.explored``, runs in their order, and ``asked``: whether the matrix asked for
        the cell, which others (a ceiling, the control) only serve.
    """
    folders = [run.folder for run in runs]
    parts = [folders[at : at + _PART] for at in range(0, len(folders), _PART)]
    if not parts:
        return explored(_nothing()).assign(asked=[])
    if len(folders) <= _ALONE:
        return pd.concat(map(_estimated, parts), ignore_index=True)
    with apart.pool() as pool:
        return pd.concat(pool.map(_estimated, parts), ignore_index=True)


def _estimated(folders: Sequence[Path]) -> pd.DataFrame:
    trials = store_many.rows(folders, [*COLUMNS, "role"])
    serves = trials["role"].isin(["ceiling", "control"]).fillna(False).astype(bool)
    own = trials.loc[~serves, KEYS].drop_duplicates()
    found = explored(trials).merge(own.assign(asked=True), on=KEYS, how="left")
    return found.assign(asked=found["asked"].notna())


def _nothing() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=object) for name in COLUMNS})
