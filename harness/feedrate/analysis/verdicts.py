"""Estimates → verdicts: all effects that a machine's claims rest on, judged together.

The more are asked, the more each must show. An effect says of two cells that B has more or less of something than A,
or as much. Each is tested for two things, by the margins of ``schema.metrics``: that there is no difference (two
one-sided tests: D. J. Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15, 1987), and that there is one (a ratio
over 1.01 in the direction that is claimed, or under 0.99, two-sided). S. Holm's procedure (Scandinavian Journal of
Statistics 6, 1979) corrects either family for its number.

The two families are corrected apart: in one procedure the effects that are decided first would loosen the level of
those left over, which are then the likeliest to be decided wrongly. What is certain of a difference leaves the family
of those that may show none: it can get no verdict there, and would only take from the others.

An effect that the source gives a figure for is compared with the figure and not with 1. Nobody gave the figures a
spread: they are taken to be right within a fifth, so that an effect of at least 0.8 times the figure confirms it.

What this is worth under five kinds of noise is simulated (``tests/simulations.py``): with 30 blocks and a spread of
4 % between pairs, nine in ten true nulls among 31 claims are called "no difference".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.estimate import Floats, blocks_for, elementwise, half_width
from feedrate.plan.student import tail
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER, SAME, least_of

ALPHA = 0.05
"""Error of the family of differences, and of single intervals."""
ALPHA_SAME = 0.025
"""Error of the family of no difference; with half of ``ALPHA``, that of one direction, it adds up to ``ALPHA``."""
CERTAIN = 0.005
"""Error at which an effect is certain of a difference."""
COLUMNS = ("p", "p_holm", "level", "lo", "hi", "verdict", "blocks_needed")
_NULL = {"confirmed": "refuted", "refuted": "refuted", "no difference": "confirmed", "inconclusive": "inconclusive"}
"""What each verdict means for a claim that there is no difference."""


class _Room(NamedTuple):
    """How far estimates lie within each verdict, as half-widths in logs; negative outside."""

    same: Floats
    above: Floats
    below: Floats

    @property
    def differ(self) -> Floats:
        return np.maximum(self.above, self.below)


def _room(effects: pd.DataFrame) -> _Room:
    log = np.log(effects["ratio"].to_numpy(dtype=np.float64))
    turn = np.where(effects["says"].eq("less"), -1.0, 1.0)
    given = zip(effects["figure"].astype("float64"), effects["says"], strict=True)
    figure = turn * np.log([least_of(*values) for values in given])
    finite = np.isfinite(figure)
    same = np.where(finite, -np.inf, np.minimum(log - np.log(SAME[0]), np.log(SAME[1]) - log))
    above = turn * log - np.where(finite, figure, np.log(CONFIRMED_OVER))
    return _Room(same, above, np.where(finite, figure, np.log(REFUTED_UNDER)) - turn * log)


def _alone(room: _Room, half: Floats) -> npt.NDArray[np.str_]:
    """What single intervals say; one that is not known says nothing."""
    rules = (room.same >= half, room.above > half, room.below > half)
    return np.asarray(np.select(rules, ("no difference", "confirmed", "refuted"), "inconclusive"), dtype=np.str_)


def holm(p: Floats) -> Floats:
    """Adjust p-values for their number (Holm 1979): the family-wise error that rejecting each would mean."""
    family = int(np.isfinite(p).sum())
    members = np.argsort(p, kind="stable")[:family]
    adjusted = np.full(p.shape, np.nan)
    adjusted[members] = np.minimum(1.0, np.maximum.accumulate(p[members] * np.arange(family, 0, -1)))
    return adjusted


def _levels(p: Floats, p_holm: Floats, alpha: float) -> Floats:
    """Level at which each effect is judged; where Holm stops, it stays for all that follow."""
    family, decided = int(np.isfinite(p).sum()), int((p_holm <= alpha).sum())
    rank = np.empty(len(p), dtype=np.int64)
    rank[np.argsort(p, kind="stable")] = np.arange(len(p))
    left = np.maximum(1, family - np.minimum(rank, decided))
    return np.where(np.isfinite(p), 1 - alpha / left, np.nan)


def judge(effects: pd.DataFrame) -> pd.DataFrame:
    """Judge effects together.

    An effect gets the verdict that its single interval gives it, if the family that this verdict is from grants it,
    else it is inconclusive: correcting for the number takes verdicts away and adds none. Effects with fewer than two
    pairs are inconclusive and count for nothing.

    Args:
        effects: ``ratio`` (B ÷ A), ``sd_log`` (between the paired log ratios), ``n`` (blocks), ``says`` (more, less or
            same) and ``figure`` (the ratio that the source's figure comes to; NaN without one).

    Returns:
        ``COLUMNS``, a row an effect: ``lo`` and ``hi`` are single 95 % intervals; ``blocks_needed`` is the number that
        would decide an inconclusive one, should estimate and spread stay as they are.
    """
    n = effects["n"].to_numpy(dtype=np.float64)
    usable, sd = np.where(n >= 2, n, np.nan), effects["sd_log"].to_numpy(dtype=np.float64)
    ratio, room = effects["ratio"].to_numpy(dtype=np.float64), _room(effects)
    half = half_width(sd, n)
    alone = _alone(room, half)
    with np.errstate(divide="ignore", invalid="ignore"):
        tails = [
            elementwise(tail, distance / (sd / np.sqrt(usable)), usable - 1) for distance in (room.same, room.differ)
        ]
    differ = np.minimum(1.0, 2 * tails[1])
    certain = (holm(differ) <= CERTAIN) & (alone != "no difference")
    families = [np.where(certain, np.nan, tails[0]), differ]
    errors = (ALPHA_SAME, ALPHA)
    adjusted = [holm(p) for p in families]
    levels = [_levels(*given) for given in zip(families, adjusted, errors, strict=True)]
    open_to_both = (alone == "inconclusive") & (families[0] <= families[1])
    family = np.where((alone == "no difference") | open_to_both, 0, 1)
    at = family, np.arange(len(effects))
    p_holm = np.array(adjusted)[at]
    verdict = np.where(p_holm <= np.array(errors)[family], alone, "inconclusive")
    # Of an interval: two one-sided tests leave twice the error outside; what counts besides is the single interval.
    level = np.where(family == 0, np.maximum(1 - ALPHA, 2 * np.array(levels)[at] - 1), np.array(levels)[at])
    target = np.where(verdict == "inconclusive", np.array((room.same, room.differ))[at], np.nan)
    columns = {
        "p": np.array(families)[at],
        "p_holm": p_holm,
        "level": level,
        "lo": ratio * np.exp(-half),
        "hi": ratio * np.exp(half),
        "verdict": _said(effects, verdict),
        "blocks_needed": blocks_for(target, sd, level),
    }
    return pd.DataFrame(columns, index=effects.index)


def _said(effects: pd.DataFrame, verdict: npt.NDArray[np.str_]) -> list[str]:
    """What verdicts on effects mean for what is said of them."""
    pairs = zip(effects["says"], map(str, verdict), strict=True)
    return [_NULL[word] if says == "same" else word for says, word in pairs]


def single_verdict(row: Mapping[str, Any], level: float = 1 - ALPHA) -> str:
    """What an effect would be called by its own interval of a level, without a correction for the number of effects.

    Args:
        row: the columns that ``judge`` takes.
        level: of the interval.
    """
    effect = pd.DataFrame([dict(row)])
    verdict = _alone(_room(effect), half_width(effect["sd_log"], effect["n"], level))
    return _said(effect, verdict)[0]
