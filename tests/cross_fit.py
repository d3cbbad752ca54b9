"""Cross-fitting in plain words, for tests that recompute what pages say without ``feedrate.analysis``."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats


def cross_fit(gains: pd.DataFrame, measured: pd.DataFrame | None = None) -> tuple[float, float, int]:
    """Mean, half-width of the 95 % interval and blocks, from logs of blocks × settings; all ways to halve blocks."""
    what = (gains if measured is None else measured).where(gains.notna())
    gains = gains.loc[:, gains.count() >= 4]
    blocks, halvings = range(len(gains)), []
    for first in map(list, combinations(blocks, len(gains) // 2)):
        second, seen = [block for block in blocks if block not in first], {}
        for choosing, measuring in ((first, second), (second, first)):
            best = gains.iloc[choosing].mean().idxmax()
            seen |= {block: what[best].iloc[block] for block in measuring}
        halvings.append(pd.Series(seen))
    mean, sd = np.mean([each.mean() for each in halvings]), np.sqrt(np.mean([each.var(ddof=1) for each in halvings]))
    n = min(int(each.count()) for each in halvings)
    return float(mean), float(stats.t.ppf(0.975, n - 1) * sd / np.sqrt(n)), n
