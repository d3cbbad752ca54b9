"""The same cells on two machines, or in two runs: how many times as fast B is as A.

Blocks of two runs have nothing in common, so nothing is paired: Welch's interval on log throughput (B. L. Welch,
Biometrika 34, 1947), in which either side has a spread of its own. It says what further blocks of these two runs would
give. What else differs between them (versions, the day, the neighbours) is in the ratio and not in its interval.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import Blocks, successful
from feedrate.analysis.contrasts import verdicts
from feedrate.analysis.estimate import Estimate, Floats, Moments, as_columns, moments, t_half_width
from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.schema.axes import SCRIPT

CELL = ["cell_id", "device"]
"""Columns that identify one cell of either run."""
SAME_IN_BOTH = ("protocol_version", "workload_version", "data_hash")
"""What must agree before two equal cells are compared."""
COLUMNS = (*CELL, "samples_per_s_a", "samples_per_s_b", "ratio", "lo", "hi", "n_a", "n_b", "df", "verdict")
OF_SCRIPT = ("workload", "script", "mode")
"""What tells cells of scripts apart where their settings do not count."""
_NAMED = ["script", "mode"]
ONCE = "measured once"
"""The verdict on a cell of which either run has one block: it has no interval."""
ROUNDING = 1e-12
"""A spread of logs up to this is none: it is what rounding leaves of equal numbers."""


def one_setting(trials: pd.DataFrame, other: pd.DataFrame | None = None) -> pd.DataFrame:
    """Let runs of a script be compared whatever their loader's settings are, which is what was changed between them.

    A cell of a script that is the only one of its mode gets the same id in every run. Not where the ``other`` run has
    several of them, as that of a search has: then the same settings are compared.
    """
    of_scripts = trials["workload"].eq(SCRIPT).fillna(False).to_numpy(dtype=bool)
    if not of_scripts.any():
        return trials
    held = trials.loc[of_scripts, ["cell_id", *_NAMED]].drop_duplicates()
    single = held[~held.duplicated(_NAMED, keep=False)]
    if other is not None:
        theirs = other[["cell_id", *_NAMED]].drop_duplicates()
        several = theirs[theirs.duplicated(_NAMED)]
        single = single[~pd.MultiIndex.from_frame(single[_NAMED]).isin(pd.MultiIndex.from_frame(several[_NAMED]))]
    ids = {str(cell): f"{script}, {mode}" for cell, script, mode in single.itertuples(index=False)}
    return trials.assign(cell_id=trials["cell_id"].replace(ids))


class _Side:
    """One run: its cells by ``CELL``, each with what must agree, whether it is a check, and whether a trial ended."""

    def __init__(self, trials: pd.DataFrame) -> None:
        runs = sorted(trials["run_id"].unique())
        if len(runs) > 1:
            names = ", ".join(runs)
            raise ValueError(f"{len(runs)} runs on one side ({names}); expected one: compare them two at a time")
        same = trials.groupby(CELL, sort=False)[["mode", *SAME_IN_BOTH]].first()
        checks = same.pop("mode").eq("check").fillna(False).to_numpy(dtype=bool)
        ended = same.index.isin(pd.MultiIndex.from_frame(successful(trials)[CELL]))
        self.cells: dict[tuple[str, str], dict[str, Any]] = dict(
            zip(same.index, rows_of(same.assign(check=checks, ended=ended)), strict=True)
        )
        self.devices: dict[str, str] = dict(reversed(list(self.cells)))
        """cell_id to a device that it ran on."""


def _reason(key: tuple[str, str], a: _Side, b: _Side) -> str | None:
    """Why a cell of either side cannot be compared; None where it can."""
    for name, mine, others in (("A", a, b), ("B", b, a)):
        if key not in others.cells:
            other = others.devices.get(key[0])
            return f"different device: {key[1]} in {name}, {other} in the other" if other else f"only in {name}"
        if key in mine.cells and mine.cells[key]["check"]:
            return "a check, which times nothing"
        if key in mine.cells and not mine.cells[key]["ended"]:
            return f"no trial ended well in {name}"
    for column in SAME_IN_BOTH:
        in_a, in_b = (side.cells[key][column] for side in (a, b))
        in_a, in_b = ("none" if pd.isna(value) else str(value) for value in (in_a, in_b))
        if in_a != in_b:
            return f"different {column}: {in_a} in A, {in_b} in B"
    return None


def matching(trials_a: pd.DataFrame, trials_b: pd.DataFrame) -> pd.DataFrame:
    """Say of every cell of two runs whether it can be compared, and if not, why.

    Returns:
        A row a cell, A's first: ``cell_id``, ``device``, every axis, and ``reason``: null where it can be compared.

    Raises:
        ValueError: a side holds more than one run.
    """
    a, b = _Side(trials_a), _Side(trials_b)
    cells = pd.concat([trials_a, trials_b], ignore_index=True).drop_duplicates(CELL)[[*CELL, *AXIS_NAMES]]
    reasons = [_reason(key, a, b) for key in zip(cells["cell_id"], cells["device"], strict=True)]
    return cells.assign(reason=pd.Series(reasons, cells.index, dtype=object)).reset_index(drop=True)


def welch(a: Moments, b: Moments) -> dict[str, Floats]:
    """Say how many times as much B is as A, cell by cell, from moments of the logs of either side's blocks.

    Returns:
        ``ratio`` with its interval ``lo``, ``hi``, NaN where either side has one value, and the degrees of freedom
        ``df`` (Welch and Satterthwaite).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        of_a, of_b = (np.where(side.sd <= ROUNDING, 0.0, side.sd) ** 2 / side.n for side in (a, b))
        df = (of_a + of_b) ** 2 / (of_a**2 / (a.n - 1) + of_b**2 / (b.n - 1))
    df = np.where(of_a + of_b == 0, a.n + b.n - 2, df)
    half = t_half_width(np.sqrt(of_a + of_b), df)
    return as_columns(("ratio", "lo", "hi", "df"), Moments(b.mean - a.mean, None, df), half=half)


def ratios(trials_a: pd.DataFrame, trials_b: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Compare the cells (``cell_id``) of two runs by ``samples_per_s``, which may stand for any rate of a trial.

    Returns:
        A row a cell, index kept: geometric means over blocks ``a`` and ``b``, ``ratio`` (B ÷ A) with its 95 % interval
        ``lo``, ``hi``, blocks ``n_a`` and ``n_b``, and ``df``; NaN where a side has no such rate.
    """
    ids = list(cells["cell_id"])
    a, b = (moments(Blocks(trials).logs([trials["run_id"].iloc[0]] * len(ids), ids)) for trials in (trials_a, trials_b))
    columns = {"a": np.exp(a.mean), "b": np.exp(b.mean), **welch(a, b), "n_a": a.n, "n_b": b.n}
    return pd.DataFrame(columns, index=cells.index)


def compare(trials_a: pd.DataFrame, trials_b: pd.DataFrame, matched: pd.DataFrame | None = None) -> pd.DataFrame:
    """Compare every cell that two runs have in common; ``matched`` is their ``matching``, where it is at hand already.

    Returns:
        A row a cell that ``matching`` gives no reason against: ``COLUMNS``, of which ``samples_per_s_a`` and
        ``samples_per_s_b`` are geometric means over blocks and the rest is that of ``ratios``, with the ``verdict`` of
        B against A (not corrected for the number of cells); then every axis.

    Raises:
        ValueError: a side holds more than one run.
    """
    every = matching(trials_a, trials_b) if matched is None else matched
    cells = every[every["reason"].isna()].reset_index(drop=True)
    if not len(cells):
        return cells.reindex(columns=[*COLUMNS, *AXIS_NAMES])
    compared = ratios(trials_a, trials_b, cells).rename(columns={"a": "samples_per_s_a", "b": "samples_per_s_b"})
    judged = verdicts(compared["ratio"], compared["lo"], compared["hi"])
    compared["verdict"] = np.where(compared["lo"].isna(), ONCE, judged)
    return pd.concat([cells, compared], axis=1)[[*COLUMNS, *AXIS_NAMES]]


def overall(compared: pd.DataFrame) -> Estimate:
    """Sum up many cells (rows of ``compare``) in one ratio; n counts cells.

    The interval is Student's t over the cells' log ratios: how far the mean would lie off for other cells *like these*,
    drawn at random. It holds how differently cells gain, not how well each was measured; a sweep's cells are chosen
    rather than drawn, and alike, so it is a measure of how much the choice of cells matters, no more.
    """
    return Estimate.of_logs(np.log(compared["ratio"].to_numpy(dtype=np.float64)))
