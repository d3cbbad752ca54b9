"""A run's claims, judged together: the more are asked, the more each must show.

A claim says of two cells that B is faster or slower than A. Each is tested for two things, by the margins of
``contrasts``: that there is no difference (two one-sided tests), and that there is one (against a ratio of 1.01 or less
for confirmed, of 0.99 or more for refuted). A p-value is the smallest a at which the interval of level 1 - a says so.
S. Holm's procedure (Scandinavian Journal of Statistics 6, 1979) corrects either family for the number of claims: the
chance that *any* verdict of a run is wrong stays under alpha.

The two families are corrected apart, although a claim that got its verdict from one needs none from the other. In one
procedure the claims that are decided first would loosen the level of those left over, which are then the likeliest to
be decided wrongly: in simulated runs of 10 claims whose truth is a difference of 3 %, up to 14 % had a wrong verdict
(22 % with 30 claims); with two families it is 3 %.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtr

from harness.analysis.blocks import CONFIDENCE, Floats, blocks_for, half_width
from harness.analysis.contrasts import room, verdicts

ALPHA = 1 - CONFIDENCE
COLUMNS = ("p", "p_holm", "level", "lo", "hi", "verdict", "blocks_needed")


def p_values(ratio: Any, sd_log: Any, n: Any, directions: Any) -> tuple[Floats, Floats]:
    """Say how strongly records speak for either thing that a claim is tested for.

    Args:
        ratio: B ÷ A, exponential of the mean paired log ratios, any shape.
        sd_log: standard deviations of the paired log ratios.
        n: how many pairs.
        directions: what the claims say of B: ``faster`` or ``slower``.

    Returns:
        Smallest a at which the Student-t interval of level 1 - a says ``no difference``, and at which it says
        ``confirmed`` or ``refuted``; float64, NaN where n < 2.
    """
    counts = np.asarray(n, dtype=np.float64)
    usable = np.where(counts >= 2, counts, np.nan)
    error = np.asarray(sd_log, dtype=np.float64) / np.sqrt(usable)
    same, differ = room(ratio, directions)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [np.minimum(1.0, 2 * stdtr(usable - 1, -each / error)) for each in (same, differ)]
    return np.asarray(found[0]), np.asarray(found[1])


def holm(p: npt.ArrayLike) -> Floats:
    """Adjust p-values for their number (Holm 1979): the family-wise error that rejecting each would mean.

    Args:
        p: p-values, one axis; NaN is no member of the family.

    Returns:
        Adjusted p-values in their order; float64.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    family = int(np.isfinite(values).sum())
    adjusted = np.full(values.shape, np.nan)
    members = order[:family]
    stepped = np.maximum.accumulate(values[members] * np.arange(family, 0, -1))
    adjusted[members] = np.minimum(1.0, stepped)
    return adjusted


def _levels(p: Floats, p_holm: Floats, alpha: float) -> Floats:
    """Level at which each claim is judged; where Holm stops, it stays for all claims that follow."""
    family = int(np.isfinite(p).sum())
    decided = int((p_holm <= alpha).sum())
    rank = np.empty(len(p), dtype=np.int64)
    rank[np.argsort(p, kind="stable")] = np.arange(len(p))
    left = np.maximum(1, family - np.minimum(rank, decided))
    return np.where(np.isfinite(p), 1 - alpha / left, np.nan)


def judge(claims: pd.DataFrame, alpha: float = ALPHA) -> pd.DataFrame:
    """Judge all claims of one run.

    In either family the claims are sorted by p; the i-th of m, from 0, is judged by its interval of level
    1 - alpha / (m - i). The first that this leaves undecided ends it for all later ones. A claim gets the verdict that
    its single interval gives it, if the family that this verdict is from grants it, else it is inconclusive: correcting
    for the number of claims takes verdicts away and adds none. Claims with fewer than two pairs are inconclusive and
    count for nothing.

    Args:
        claims: a row a claim: ``ratio`` (B ÷ A), ``sd_log`` and ``n`` as from ``Blocks.ratios``, and ``direction``.
        alpha: chance of any wrong verdict that is accepted.

    Returns:
        A row a claim, index kept: ``p`` (see ``p_values``; of its verdict's family, or of the nearer one), ``p_holm``
        (adjusted in that family), ``level`` (of the interval that decides there), ``lo`` and ``hi`` (single interval of
        level 1 - alpha), ``verdict``, and ``blocks_needed`` where that is inconclusive (blocks with which the claim
        would be decided at ``level``, should estimate and spread stay as they are; else NaN).
    """
    ratio, sd, n = (claims[name].to_numpy(dtype=np.float64) for name in ("ratio", "sd_log", "n"))
    directions = claims["direction"].to_numpy(dtype=object)
    half = half_width(sd, n, 1 - alpha)
    lo, hi = ratio * np.exp(-half), ratio * np.exp(half)
    alone = verdicts(ratio, lo, hi, directions)
    families = p_values(ratio, sd, n, directions)
    open_to_both = (alone == "inconclusive") & (families[0] <= families[1])
    at = np.where((alone == "no difference") | open_to_both, 0, 1), np.arange(len(claims))
    adjusted = [holm(p) for p in families]
    levels = [_levels(p, p_holm, alpha) for p, p_holm in zip(families, adjusted, strict=True)]
    p_holm, level = np.array(adjusted)[at], np.array(levels)[at]
    verdict = np.where(p_holm <= alpha, alone, "inconclusive")
    needed = blocks_for(np.array(room(ratio, directions))[at], sd, level)
    needed = np.where(verdict == "inconclusive", needed, np.nan)
    columns = (np.array(families)[at], p_holm, level, lo, hi, verdict, needed)
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)), index=claims.index)
