"""The same cells on two machines, or in two runs: how many times as fast B is as A.

Blocks of two runs have nothing in common, so nothing is paired: Welch's interval on log throughput (B. L. Welch,
Biometrika 34, 1947), in which either side has a spread of its own. It says what further blocks of these two runs would
give. What else differs between them (versions, the day, the neighbours) is in the ratio and not in its interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.analysis.blocks import Blocks, Floats, Moments, good, half_width, moments, reach
from harness.analysis.contrasts import verdicts
from harness.analysis.estimates import AXIS_NAMES

CELL = ["cell_id", "device"]
"""What tells one cell of either run."""
SAME_IN_BOTH = ("protocol_version", "workload_version", "data_hash")
"""What must agree before two equal cells are compared."""
COLUMNS = (*CELL, "samples_per_s_a", "samples_per_s_b", "ratio", "lo", "hi", "n_a", "n_b", "df", "verdict")


@dataclass(frozen=True, slots=True)
class Overall:
    """How many times as fast B is over many cells."""

    ratio: float
    """Geometric mean over cells of B ÷ A; NaN for none."""
    lo: float
    """Ends of its 95 % interval; NaN for fewer than two cells."""
    hi: float
    cells: int


Side = dict[tuple[str, str], dict[str, Any]]
"""The cells of one run by ``CELL``: what must agree, and whether a trial ended well."""


def _side(trials: pd.DataFrame) -> Side:
    runs = sorted(trials["run_id"].unique())
    if len(runs) > 1:
        raise ValueError(f"{len(runs)} runs on one side ({', '.join(runs)}); expected one: compare them two at a time")
    found = trials.groupby(CELL, sort=False)[list(SAME_IN_BOTH)].first()
    ended = found.index.isin(pd.MultiIndex.from_frame(good(trials)[CELL]))
    return dict(zip(found.index, found.assign(ended=ended).to_dict("records"), strict=True))


def _reason(key: tuple[str, str], a: Side, b: Side) -> str | None:
    """Why a cell of either side cannot be compared; None where it can."""
    for name, mine, others in (("A", a, b), ("B", b, a)):
        if key not in others:
            devices = [device for cell, device in others if cell == key[0]]
            return f"different device: {key[1]} in {name}, {devices[0]} in the other" if devices else f"only in {name}"
        if key in mine and not mine[key]["ended"]:
            return f"no trial ended well in {name}"
    for column in SAME_IN_BOTH:
        seen = [None if pd.isna(side[key][column]) else side[key][column] for side in (a, b)]
        if seen[0] != seen[1]:
            return f"different {column}: {seen[0]} in A, {seen[1]} in B"
    return None


def matching(trials_a: pd.DataFrame, trials_b: pd.DataFrame) -> pd.DataFrame:
    """Say of every cell of two runs whether it can be compared, and if not, why.

    Args:
        trials_a: rows of ``records.TRIALS`` of one run.
        trials_b: of another.

    Returns:
        A row a cell, A's first: ``cell_id``, ``device``, every axis, and ``reason``: null where it can be compared.

    Raises:
        ValueError: a side holds more than one run.
    """
    a, b = _side(trials_a), _side(trials_b)
    cells = pd.concat([trials_a, trials_b], ignore_index=True).drop_duplicates(CELL)[[*CELL, *AXIS_NAMES]]
    reasons = [_reason(key, a, b) for key in zip(cells["cell_id"], cells["device"], strict=True)]
    return cells.assign(reason=pd.Series(reasons, cells.index, dtype=object)).reset_index(drop=True)


def _moments(trials: pd.DataFrame, cells: pd.DataFrame) -> Moments:
    run = trials["run_id"].iloc[0]
    return moments(Blocks(trials).logs([run] * len(cells), list(cells["cell_id"])))


def _welch(a: Moments, b: Moments) -> tuple[Floats, Floats]:
    """Half-width of the 95 % interval of mean B - mean A, and its degrees of freedom (Welch and Satterthwaite)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        of_a, of_b = a.sd**2 / a.n, b.sd**2 / b.n
        df = (of_a + of_b) ** 2 / (of_a**2 / (a.n - 1) + of_b**2 / (b.n - 1))
    df = np.where(of_a + of_b == 0, a.n + b.n - 2, df)
    return reach(np.sqrt(of_a + of_b), df), df


def compare(trials_a: pd.DataFrame, trials_b: pd.DataFrame) -> pd.DataFrame:
    """Compare every cell that two runs have in common.

    Args:
        trials_a: rows of ``records.TRIALS`` of one run.
        trials_b: of another, of the same machine or of another one.

    Returns:
        A row a cell that ``matching`` gives no reason against: ``cell_id``, ``device``, ``samples_per_s_a`` and
        ``samples_per_s_b`` (geometric means over blocks), ``ratio`` (B ÷ A) with its 95 % interval ``lo``, ``hi`` (NaN
        where either side has one block), ``n_a`` and ``n_b`` (blocks), ``df`` (degrees of freedom), ``verdict`` (of B
        against A, see ``contrasts.verdicts``; not corrected for the number of cells), then every axis.

    Raises:
        ValueError: a side holds more than one run.
    """
    every = matching(trials_a, trials_b)
    cells = every[every["reason"].isna()].reset_index(drop=True)
    if not len(cells):
        return cells.reindex(columns=[*COLUMNS, *AXIS_NAMES])
    a, b = _moments(trials_a, cells), _moments(trials_b, cells)
    log = b.mean - a.mean
    half, df = _welch(a, b)
    ratio, lo, hi = np.exp(log), np.exp(log - half), np.exp(log + half)
    found = cells.assign(
        samples_per_s_a=np.exp(a.mean),
        samples_per_s_b=np.exp(b.mean),
        ratio=ratio,
        lo=lo,
        hi=hi,
        n_a=a.n,
        n_b=b.n,
        df=df,
        verdict=verdicts(ratio, lo, hi),
    )
    return found[[*COLUMNS, *AXIS_NAMES]]


def overall(compared: pd.DataFrame) -> Overall:
    """Sum up many cells in one ratio.

    The interval is Student's t over the cells' log ratios: how far the mean would lie off for other cells *like these*,
    drawn at random. It holds how differently cells gain, not how well each was measured; a sweep's cells are chosen
    rather than drawn, and alike, so it is a measure of how much the choice of cells matters, no more.

    Args:
        compared: rows of ``compare``, or those of them that a question is about.
    """
    mean, sd, n = moments(np.log(compared["ratio"].to_numpy(dtype=np.float64)))
    half = half_width(sd, n)
    return Overall(float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half)), int(n))
