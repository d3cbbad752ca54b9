"""The frame that charts draw: estimates a cell, and beside throughput an interval for utilization as well."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.analysis import estimates
from harness.analysis.blocks import KEYS, good, half_width
from harness.analysis.once import once

UTILIZATION = ("gpu_util_pct", "cpu_util_pct")


@once
def estimated(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate the cells of a run.

    Args:
        trials: rows of ``records.TRIALS``.

    Returns:
        ``analysis.estimates.cells``, with each utilization as the mean over blocks and, under its name with ``_lo`` and
        ``_hi``, the 95 % Student-t interval of that mean (NaN where n < 2), cut off at 0 and 100.
    """
    cells = estimates.cells(trials)
    ended = good(trials)
    names = list(UTILIZATION)
    keys = [ended[key] for key in (*KEYS, "block")]
    groups = ended[names].astype("float64").groupby(keys).mean().groupby(level=KEYS)
    places = pd.MultiIndex.from_frame(cells[KEYS])
    means, spreads, counts = (found.reindex(places) for found in (groups.mean(), groups.std(), groups.count()))
    columns: dict[str, Any] = {}
    for name in names:
        mean = means[name].to_numpy()
        half = half_width(spreads[name].to_numpy(), counts[name].to_numpy())
        columns |= {name: mean, f"{name}_lo": (mean - half).clip(0, 100), f"{name}_hi": (mean + half).clip(0, 100)}
    return cells.assign(**columns)
