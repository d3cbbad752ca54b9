"""Bandwidth of copies from the host to the device, by how much is copied at once.

A batch is copied by one call a tensor; what it holds ÷ how long they spanned on the device is the rate of these calls:
launches, gaps between them and waits lie inside. At sizes under some MB it is mostly launching; only far above does it
near the rate of the bus. CUDA events time it on the stream that copies: a pageable batch is staged by the driver within
that span, a pinned one goes straight. It does *not* show what a training loop waits for, which overlap can hide.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from harness.analysis.blocks import KEYS, good, half_width, moments
from harness.analysis.estimates import AXIS_NAMES, IDENTITY, cells

ADDED = ("gb_per_s", "gb_lo", "gb_hi", "gb_n", "batch_bytes")


def transfers(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate the bandwidth of the copy calls of every cell that copies to a device.

    Args:
        trials: rows of ``records.TRIALS`` of any number of runs.

    Returns:
        The rows of ``cells`` whose copies were timed, with ``batch_bytes`` (median), ``gb_per_s`` (batch_bytes × steps
        ÷ device_h2d_ns, in 10⁹ bytes/s: geometric mean over blocks) with its 95 % Student-t interval on logs ``gb_lo``,
        ``gb_hi`` (NaN for fewer than two blocks) and ``gb_n`` (blocks). Replicas, whose copies share a bus, are left
        out.
    """
    ended = good(trials)
    size, steps, span = (ended[name].astype("float64") for name in ("batch_bytes", "steps", "device_h2d_ns"))
    alone = ended["parallel"].isna() | ended["parallel"].eq("none").fillna(False)
    timed = size.gt(0) & steps.gt(0) & span.gt(0) & alone.astype(bool)
    if not timed.any():
        return pd.DataFrame(columns=[*IDENTITY, *AXIS_NAMES, *ADDED])
    ended, rate = ended[timed], (size * steps / span)[timed]
    table = cells(ended)
    keys = [ended[key] for key in KEYS]
    blocks = pd.Series(np.log(rate), rate.index).groupby([*keys, ended["block"]]).mean().unstack("block")
    mean, sd, n = moments(blocks.to_numpy(dtype=np.float64))
    half = half_width(sd, n)
    columns = {"gb_per_s": np.exp(mean), "gb_lo": np.exp(mean - half), "gb_hi": np.exp(mean + half), "gb_n": n}
    found = pd.DataFrame(columns, index=blocks.index).assign(batch_bytes=size[timed].groupby(keys).median())
    return table.merge(found.reset_index(), on=list(KEYS), how="inner")
