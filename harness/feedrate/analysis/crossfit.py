"""The gain of the best of many settings, without the winner's curse.

The best of many is chosen because it looked best, and so looks better than it is: of 20 equal settings at a spread of
3 % and 8 blocks, the best seems to gain 2 %. Here a setting is chosen on one half of the blocks and measured on the
other, and the other way round; the mean is over all ways to halve them (10 of 5 blocks), or over ``HALVINGS`` of them.

The interval is Student's t of the measured blocks. Simulated for 5 to 60 settings, equal ones and such that differ, and
5 to 20 blocks it covers the true gain of what was chosen in 95 to 99 % of cases. Leaving single blocks out instead is
unbiased, too, but its interval covers 75 to 95 %: nearly all blocks choose, so what is measured is not independent.
Half of the blocks choose less well than all of them: the setting that all choose, which is named, gains up to 0.6 %
more than its number on average (60 settings, of which the best differ by as much as trials scatter).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from feedrate.analysis.estimate import Estimate, Floats, moments

Setting = TypeVar("Setting", bound=Hashable)
HALVINGS = 200
"""More ways are drawn from, with one seed for all."""
LEAST_BLOCKS = 4
"""With fewer a half has a single block."""
ABOUT = 0.95
"""Share of the highest speed, and of the log of the highest gain, that is enough for a cheaper setting."""


class Gain(NamedTuple):
    """What the best of several settings gains over a fixed one."""

    chosen: int
    """The setting that is best on all blocks, or cheaper and about as fast: the one that is named."""
    ratio: Estimate
    """Over the blocks that were measured, the fewest in a halving; NaN with fewer than ``LEAST_BLOCKS`` of them."""


@cache
def _halvings(blocks: int) -> npt.NDArray[np.bool_]:
    """Which blocks are in the smaller half, halvings × blocks; of an even number both halves are counted once."""
    ways = combinations(range(blocks), blocks // 2) if blocks < 14 else ()
    chosen = [half for half in ways if blocks % 2 or 0 in half]
    if not 0 < len(chosen) <= HALVINGS:
        random = np.random.default_rng(0)
        chosen = [tuple(random.permutation(blocks)[: blocks // 2]) for _ in range(HALVINGS)]
    masks = np.zeros((len(chosen), blocks), dtype=bool)
    for mask, half in zip(masks, chosen, strict=True):
        mask[list(half)] = True
    return masks


def _best(gains: Floats, halves: npt.NDArray[np.bool_], cheaper: Sequence[Sequence[int]]) -> npt.NDArray[np.intp]:
    """The row of the highest mean over each half, or the first of its cheaper ones that reaches about as much.

    One without a value is never it, as long as there is another.
    """
    finite = np.isfinite(gains)
    sums, counts = np.where(finite, gains, 0.0) @ halves.T, finite.astype(np.float64) @ halves.T
    means: Floats = np.divide(sums, counts, out=np.full(sums.shape, -np.inf), where=counts > 0)
    best: npt.NDArray[np.intp] = means.argmax(axis=0)
    for half, row in enumerate(best if cheaper else ()):
        reached = max(means[row, half] + np.log(ABOUT), ABOUT * means[row, half])
        best[half] = next((other for other in cheaper[row] if means[other, half] >= reached), row)
    return best


def over(logs: Mapping[Setting, Mapping[int, float]], present: Setting, recommended: Setting) -> Gain | None:
    """Say what a search's setting gains over the present one, which ran in some of its blocks; None where it did not.

    Args:
        logs: setting to block to the log of a time, of settings that never failed.
        present: the setting to compare with.
        recommended: the setting that was recommended; settings take part that ran wherever these two did.
    """
    if present not in logs or recommended == present:
        return None
    blocks = sorted(logs[present].keys() & logs[recommended].keys())
    rows = [
        [logs[present][block] - setting_logs[block] for block in blocks]
        for setting, setting_logs in logs.items()
        if setting != present and setting_logs.keys() >= set(blocks)
    ]
    return cross_fitted(np.array(rows)) if blocks else None


def regret_pct(paces: Mapping[Setting, Sequence[float]], chosen: Setting) -> float:
    """Say by how many per cent the best of several settings is faster than a chosen one, the best cross-fitted.

    Args:
        paces: setting to its pace, block by block, without a gap; ``LEAST_BLOCKS`` at least.
        chosen: one of them.
    """
    gains = np.array([np.log(np.divide(pace, paces[chosen])) for setting, pace in paces.items() if setting != chosen])
    return 100 * max(0.0, cross_fitted(gains).ratio.value - 1) if len(gains) else 0.0


def cross_fitted(gains: Floats, of: Floats | None = None, cheaper: Sequence[Sequence[int]] = ()) -> Gain:
    """Choose on one half of the blocks, measure on the other.

    Args:
        gains: log ratios of every setting to the fixed one, settings × blocks; NaN where either failed. Settings with
            fewer than ``LEAST_BLOCKS`` values are not chosen, as long as another has so many.
        of: what is measured, of the same shape, where that is something else than what is chosen by.
        cheaper: of every setting others that are chosen in its place where they reach ``ABOUT`` of its speed and of
            the log of its gain, the cheapest first.
    """
    finite = np.isfinite(gains)
    target = np.where(finite, gains if of is None else of, np.nan)
    enough = finite.sum(axis=1) >= LEAST_BLOCKS
    blocks = finite.any(axis=0)
    whole, target = np.where(enough[:, None] | ~enough.any(), gains, np.nan)[:, blocks], target[:, blocks]
    halves, measured = _halvings(whole.shape[1]), np.empty(())
    for chosen_on in (halves, ~halves):
        measured = np.where(~chosen_on, target[_best(whole, chosen_on, cheaper)], measured)
    named = int(_best(whole, np.ones((1, whole.shape[1]), dtype=bool), cheaper)[0])
    mean, sd, n = moments(measured)
    if (least := int(n.min())) < LEAST_BLOCKS:
        return Gain(named, Estimate(np.nan, np.nan, np.nan, least, "ratio"))
    return Gain(named, Estimate.of_moments(mean.mean(), np.sqrt((sd**2).mean()), least))
