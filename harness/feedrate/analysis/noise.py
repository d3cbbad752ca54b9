"""Trials → how far a run can be trusted: a grade from A to D, and what disturbed its trials.

The grade says how quiet the machine was and how often it was asked, not how good its numbers are: intervals carry the
noise that is there. A run is as good as its worst criterion. One that cannot be judged (a machine that tells nothing of
its load, a run without a control cell) is no proof of quiet: with it a run is B at best.

The control cell over a run: does the machine stay the same, and does a cell that is compared with itself differ?

The control cell runs again and again. Its throughput against time shows a machine that grows slower or faster while it
is measured; blocks take that out of ratios, not out of single throughputs. Its trials within a block, compared as if
they were two cells, show what the comparison itself finds where there is nothing to be found (an A/A test): its
interval must hold 1 in 95 of 100 runs.

This does *not* show what disturbs cells unlike the control cell: one that waits for a sleep feels nothing of a slow
disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import Floats, half_width, moments, successful, t_half_width
from feedrate.analysis.estimates import cells, rows_of
from feedrate.machine.probes import noise
from feedrate.schema.columns import FLAGS

FEWEST_FOR_SLOPE = 3
"""Trials from which a slope has an interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; NaN where too few were seen."""

    value: float
    lo: float
    hi: float
    n: int
    """Blocks, or trials where it is a slope."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How the logarithm of throughput grows over time: least squares over trials, Student-t interval."""

    slope: float
    """A second."""
    lo: float
    hi: float
    n: int
    """Trials."""
    seconds: float
    """From the first trial to the last."""

    def over(self, seconds: float) -> Estimate:
        """Say by how many times throughput changes over a time, in seconds; what is infinite is too far off to say."""
        with np.errstate(over="ignore"):  # few trials, close together, may mean anything over a long time
            value, lo, hi = (float(np.exp(seconds * slope)) for slope in (self.slope, self.lo, self.hi))
        return Estimate(value, lo, hi, self.n)


def control_trials(ended: pd.DataFrame, cell_id: str | None = None) -> pd.DataFrame:
    """Keep the trials of the control cell, in their order.

    Args:
        ended: trials of one run that ended well.
        cell_id: of the control cell (``RunManifest.control``); by default the cell of the trials that ran as one.
    """
    if cell_id is None:
        named = ended.loc[ended["role"].eq("control").fillna(False).astype(bool), "cell_id"]
        cell_id = None if named.empty else str(named.iloc[0])
    return ended[ended["cell_id"].eq(cell_id).fillna(False).astype(bool)] if cell_id else ended.iloc[:0]


def seconds_since_first(trials: pd.DataFrame) -> pd.Series:
    """When trials began, in seconds since the first of them; NaN where that is not recorded."""
    began = pd.to_datetime(trials["started_at"].astype(object), utc=True, format="ISO8601")
    return (began - began.min()).dt.total_seconds()


def drift_trend(at: Floats, rates: Floats) -> Trend | None:
    """Fit the logarithm of throughput over time.

    Args:
        at: when each trial began, seconds; NaN is left out.
        rates: its throughput, samples/s, as many.

    Returns:
        The slope; None with fewer than three trials, or all of them at once.
    """
    known = np.isfinite(at)
    at, logs = at[known], np.log(rates[known])
    if len(at) < FEWEST_FOR_SLOPE or np.ptp(at) <= 0:
        return None
    centred = at - at.mean()
    slope = (centred @ logs) / (centred @ centred)
    residuals = logs - logs.mean() - slope * centred
    half = t_half_width(np.sqrt(residuals @ residuals / (len(at) - 2) / (centred @ centred)), len(at) - 2)
    return Trend(float(slope), float(slope - half), float(slope + half), len(at), float(np.ptp(at)))


def mean_rate(own: pd.DataFrame) -> Estimate:
    """Estimate the throughput of one cell: geometric mean over blocks, Student-t interval on logs, samples/s."""
    logs = pd.Series(np.log(own["samples_per_s"].astype("float64")), own.index).groupby(own["block"]).mean()
    return _exponential(np.asarray(logs, dtype=np.float64))


def _exponential(logs: Floats) -> Estimate:
    mean, sd, n = (each[0] for each in moments(logs[None, :]))
    half = half_width(sd, n)
    value, lo, hi = (float(np.exp(end)) for end in (mean, mean - half, mean + half))
    return Estimate(value, lo, hi, int(n))


def self_ratios(own: pd.DataFrame) -> pd.DataFrame:
    """Compare trials of one cell within each block as if every second were of another cell.

    Two trials that follow each other make a pair. Which of them plays B changes from pair to pair over the whole run,
    so that a machine that grows slower favours neither; a block's last trial that is left over belongs to none.

    Args:
        own: trials of one cell of one run that ended well.

    Returns:
        A row a block with at least one pair: ``block``, ``ratio`` (B ÷ A, geometric mean of its pairs) and ``pairs``.
    """
    ordered = own.sort_values(["block", "position"], kind="stable")
    place = ordered.groupby("block").cumcount()
    paired = ordered[(place - place % 2 + 1) < ordered.groupby("block")["block"].transform("size")]
    logs = np.log(paired["samples_per_s"].to_numpy(dtype=np.float64))
    first, second = logs[0::2], logs[1::2]
    sign = np.where(np.arange(len(first)) % 2 == 0, 1.0, -1.0)
    pairs = pd.DataFrame({"block": paired["block"].to_numpy()[0::2], "log": sign * (second - first)})
    groups = pairs.groupby("block")["log"]
    return pd.DataFrame({"ratio": np.exp(groups.mean()), "pairs": groups.size()}).reset_index()


def pooled_ratio(compared: pd.DataFrame) -> Estimate:
    """Sum up what :func:`self_ratios` found: B ÷ A over all blocks, with its 95 % interval; 1 is the truth."""
    return _exponential(np.log(compared["ratio"].to_numpy(dtype=np.float64)))


LETTERS = "ABCD"
UNKNOWN_AT_BEST = "B"
"""The best letter of a run of which a criterion cannot be judged."""
WATCHED = tuple(flag for flag in FLAGS if flag != "unsteady")
"""Flags about what others do; whether a trial is steady is known without looking at the machine."""
FEWEST_FOR_DRIFT = FEWEST_FOR_SLOPE
"""Trials of the control cell from which a slope has an interval."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """What a grade depends on, and how much is allowed for each letter."""

    name: str
    limits: tuple[float, float, float]
    """For A, B and C; beyond the last is D."""
    unit: str
    doc: str
    """What is judged, and why from there."""
    at_least: bool = False
    """Whether the limits are the least allowed; else the most."""

    def letter(self, value: float) -> str:
        """Judge a value: one on a limit still has the better letter."""
        for letter, limit in zip(LETTERS, self.limits, strict=False):
            if value >= limit if self.at_least else value <= limit:
                return letter
        return LETTERS[-1]


CRITERIA = (
    Criterion(
        "flagged",
        (5.0, 15.0, 40.0),
        "% of trials",
        "Trials that carry a flag. Up to 5 %, most cells of eight blocks have none; at 15 % each has about one, which "
        "its interval takes up; beyond 40 % quiet is the exception.",
    ),
    Criterion(
        "spread",
        (3.0, 6.0, 12.0),
        "%",
        "Coefficient of variation between blocks, median over cells. At 3 % fifteen blocks show that two settings do "
        "not differ by 3 % in nine of ten cases, at 6 % in one of fourteen; paired trials of a quiet machine vary by "
        "2 to 7 %, beside other work by 20 % and more.",
    ),
    Criterion(
        "drift",
        (3.0, 6.0, 12.0),
        "%",
        "By how much the control cell's throughput changed from the run's beginning to its end, at least: the end of "
        "the 95 % interval of its slope that is nearer to none. An interval that holds both none and more than the "
        "last limit tells nothing. Blocks take drift out of ratios, not out of single throughputs.",
    ),
    Criterion(
        "blocks",
        (8, 5, 2),
        "blocks",
        "Blocks in which the cells were measured, median. From 8 on, stopping early does not narrow intervals "
        "unduly; with fewer than 2 there is no interval.",
        at_least=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Grade:
    """How far a run can be trusted, and why. None is what the trials do not tell."""

    letter: str
    """A to D."""
    letters: Mapping[str, str | None]
    """Criterion to its letter."""
    reasons: tuple[str, ...]
    """A sentence a criterion, the worst first."""
    trials: int
    """Trials that ended well."""
    flagged_pct: float | None
    """Share of them that carry a flag."""
    by_flag: Mapping[str, float]
    """Flag to the share of them that carry it, in percent; flags that none carries are left out."""
    unwatched: tuple[str, ...]
    """Flags that could not be raised, as the machine told nothing of their cause in any trial."""
    spread_pct: float | None
    """Median over cells of the coefficient of variation between blocks."""
    control_spread_pct: float | None
    """Coefficient of variation of all trials of the control cell."""
    drift_pct: float | None
    """Change of the control cell's throughput over the run."""
    drift_lo_pct: float | None
    """Lower end of its 95 % interval."""
    drift_hi_pct: float | None
    """Upper end."""
    blocks: int
    """Median over cells of the blocks in which they were measured."""


@dataclass(frozen=True, slots=True)
class _Drift:
    pct: float
    lo: float
    hi: float

    @property
    def shown(self) -> float | None:
        """The least change that the interval holds; None when it holds everything from none to the worst."""
        least, most = sorted((abs(self.lo), abs(self.hi)))
        least = 0.0 if self.lo <= 0 <= self.hi else least
        limits = next(each.limits for each in CRITERIA if each.name == "drift")
        return None if least <= limits[0] and most > limits[-1] else least


def _rows(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """What the rules read, with None for null."""
    given = trials.reindex(columns=list(noise.READS)).astype(object)
    return [{name: None if pd.isna(value) else value for name, value in row.items()} for row in rows_of(given)]


def flagged(trials: pd.DataFrame) -> pd.DataFrame:
    """Sum up what disturbed trials.

    Args:
        trials: rows of ``records.TRIALS`` of any number of runs.

    Returns:
        A row a flag, in the order of ``records.FLAGS``: ``flag``, ``trials`` (that carry it), ``watched`` (trials in
        which the machine told what the flag is about), ``share`` (of all trials, 0 to 1; NaN without trials), ``worst``
        (the largest value among those that carry it, NaN without any), ``measure`` (what that is: a column, or a name
        in ``feedrate.machine.probes.noise.DERIVED``) and ``unit``.
    """
    named = trials["flags"].astype(object).where(trials["flags"].notna(), "").str.split(",")
    rows = _rows(trials)
    found = []
    for flag in FLAGS:
        carries = [flag in names for names in named]
        limits = [rule.limits[0] for rule in noise.RULES if rule.flag == flag]
        values = [
            max((value for limit in limits if (value := noise.measure(limit.measure, row)) is not None), default=None)
            for row in rows
        ]
        worst = [value for value, carried in zip(values, carries, strict=True) if carried and value is not None]
        found.append(
            {
                "flag": flag,
                "trials": sum(carries),
                "watched": sum(value is not None for value in values),
                "share": np.mean(carries) if carries else np.nan,
                "worst": max((value for value in worst if np.isfinite(value)), default=np.nan),
                "measure": limits[0].measure,
                "unit": limits[0].unit,
            }
        )
    return pd.DataFrame(found)


def _drift(ended: pd.DataFrame, own: pd.DataFrame) -> _Drift | None:
    """What the control cell's trend comes to over the run."""
    began = seconds_since_first(ended)
    at, rates = (
        np.asarray(column, dtype=np.float64)
        for column in (began.loc[own.index], own["samples_per_s"].astype("float64"))
    )
    if (trend := drift_trend(at, rates)) is None:
        return None
    found = trend.over(float(began.max()))
    return _Drift(*(100 * (end - 1) for end in (found.value, found.lo, found.hi)))


def _variation_pct(values: pd.Series) -> float | None:
    numbers = values.to_numpy(dtype=np.float64)
    return float(100 * numbers.std(ddof=1) / numbers.mean()) if len(numbers) > 1 else None


def _unwatched(summary: pd.DataFrame, trials: pd.DataFrame) -> tuple[str, ...]:
    """Flags that the machine told nothing about; those of a GPU count only where there is one."""
    gpu = trials["device"].eq("cuda").fillna(False).any()
    seen = summary.set_index("flag")["watched"]
    return tuple(flag for flag in WATCHED if not seen[flag] and (gpu or not flag.startswith("gpu_")))


def _reasons(found: Grade, letters: Mapping[str, str | None], told: bool) -> dict[str, str]:
    """What each criterion rests on, in words."""
    flags = ", ".join(f"{flag} {share:.1f} %" for flag, share in found.by_flag.items())
    unknown = f"; not told here: {', '.join(found.unwatched)}" if told and found.unwatched else ""
    own = "" if found.control_spread_pct is None else f"; the control cell's trials by {found.control_spread_pct:.1f} %"
    return {
        "flagged": "No trial ended well"
        if found.flagged_pct is None
        else f"{found.flagged_pct:.1f} % of {found.trials:,} trials carry a flag{flags and f' ({flags})'}{unknown}"
        + ("" if told else "; the machine told nothing of other work"),
        "spread": "How trials vary between blocks is not known (no cell was measured in two)"
        if found.spread_pct is None
        else f"Half of the cells vary by {found.spread_pct:.1f} % or more between blocks{own}",
        "drift": "Drift is not known (the control cell did not run often enough)"
        if found.drift_pct is None
        else f"The control cell changed by {_signed(found.drift_pct)} % over the run "
        f"(95 %: {_signed(found.drift_lo_pct)} to {_signed(found.drift_hi_pct)} %)"
        + ("" if letters["drift"] else ", which tells nothing of drift"),
        "blocks": f"Half of the cells were measured in {found.blocks} blocks or more",
    }


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f}".replace("-", "−")


def _judged(found: Grade, values: Mapping[str, float | None], told: bool) -> Grade:
    """Add the letters and the sentences."""
    letters = {each.name: None if (value := values[each.name]) is None else each.letter(value) for each in CRITERIA}
    counts = {name: letter or UNKNOWN_AT_BEST for name, letter in letters.items()}
    if not told:
        counts["flagged"] = max(counts["flagged"], UNKNOWN_AT_BEST)
        letters["flagged"] = None if counts["flagged"] == UNKNOWN_AT_BEST else letters["flagged"]
    sentences = _reasons(found, letters, told)
    ranked = sorted(counts, key=lambda name: counts[name], reverse=True)
    return replace(
        found,
        letter=max(counts.values()),
        letters=letters,
        reasons=tuple(f"{sentences[name]}: {letters[name] or f'{UNKNOWN_AT_BEST} at best'}." for name in ranked),
    )


def grade(trials: pd.DataFrame, control: str | None = None) -> Grade:
    """Grade a run by ``CRITERIA``: its letter is that of the worst.

    Args:
        trials: rows of ``records.TRIALS`` of one run.
        control: cell_id of the control cell (``RunManifest.control``); by default the cell of the trials that ran as
            one (``role``).

    Returns:
        The grade.

    Raises:
        ValueError: the trials are of several runs.
    """
    if trials["run_id"].nunique() > 1:
        raise ValueError(f"trials of {trials['run_id'].nunique()} runs; expected those of one: a grade is a run's")
    ended = successful(trials).reset_index(drop=True)
    summary, own = flagged(ended), control_trials(ended, control)
    change = _drift(ended, own)
    measured = cells(trials).query("n > 0")
    spread = measured["cv_pct"].median()
    found = Grade(
        letter=LETTERS[-1],
        letters={},
        reasons=(),
        trials=len(ended),
        flagged_pct=float(100 * ended["flags"].notna().mean()) if len(ended) else None,
        by_flag={flag: 100 * n / len(ended) for flag, n in zip(summary["flag"], summary["trials"], strict=True) if n},
        unwatched=_unwatched(summary, ended),
        spread_pct=None if pd.isna(spread) else float(spread),
        control_spread_pct=_variation_pct(own["samples_per_s"]),
        drift_pct=None if change is None else change.pct,
        drift_lo_pct=None if change is None else change.lo,
        drift_hi_pct=None if change is None else change.hi,
        blocks=int(measured["n"].median()) if len(measured) else 0,
    )
    values = {
        "flagged": found.flagged_pct,
        "spread": found.spread_pct,
        "drift": None if change is None else change.shown,
        "blocks": float(found.blocks),
    }
    return _judged(found, values, told=bool(summary.loc[summary["flag"].isin(WATCHED), "watched"].any()))
