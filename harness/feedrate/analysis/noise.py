"""How far a run can be trusted: its control cell over time, and a grade.

The control cell runs again and again. Its throughput against time shows a machine that grows slower or faster while it
is measured; blocks take that out of ratios, not out of single throughputs. This does *not* show what disturbs cells
unlike the control cell: one that waits for a sleep feels nothing of a slow disk.

The grade says how quiet the machine was and how often it was asked, not how good its numbers are: intervals carry the
noise that is there. A run is as good as its worst criterion. One that cannot be judged (a machine that tells nothing of
its load, a run without a control cell) is no proof of quiet: with it a run is B at best. Of somebody's own script
``OF_SCRIPTS`` alone are judged: its loop is one cell, and stretches of it differ as what the script does differs; of a
search among its settings ``OF_SEARCHES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import successful
from feedrate.analysis.diagnosis import (
    FAR,
    LEAST_BLOCKS,
    LEAST_CELLS,
    MOST_FAR,
    MOST_LAG1,
    MOST_SHIFT,
    Diagnosis,
    diagnose,
)
from feedrate.analysis.estimate import Estimate, Floats, t_half_width
from feedrate.analysis.estimates import cells, rows_of
from feedrate.machine.probes import noise
from feedrate.schema.axes import SCRIPT, TUNE
from feedrate.schema.columns import FLAGS
from feedrate.schema.words import per_cent, plural, signed


@dataclass(frozen=True, slots=True)
class Trend:
    """How the logarithm of throughput grows over time: least squares over trials, Student-t interval."""

    slope: Estimate
    """A second; n counts trials."""
    seconds: float
    """From the first trial to the last."""

    def over(self, seconds: float) -> Estimate:
        """Say by how many times throughput changes over a time, in seconds; what is infinite is too far off to say."""
        with np.errstate(over="ignore"):  # few trials, close together, may mean anything over a long time
            return self.slope.through(lambda slope: float(np.exp(seconds * slope)), "ratio")


def control_trials(ended: pd.DataFrame, cell_id: str | None = None) -> pd.DataFrame:
    """Keep the trials of a run's control cell (``RunManifest.control``); by default of the cell that ran as one."""
    if cell_id is None:
        named = ended.loc[ended["role"].eq("control").fillna(False).astype(bool), "cell_id"]
        cell_id = None if named.empty else str(named.iloc[0])
    return ended[ended["cell_id"].eq(cell_id).fillna(False).astype(bool)] if cell_id else ended.iloc[:0]


def seconds_since_first(trials: pd.DataFrame) -> pd.Series:
    """When trials began, in seconds since the first of them; NaN where that is not recorded."""
    began = pd.to_datetime(trials["started_at"].astype(object), utc=True, format="ISO8601")
    return (began - began.min()).dt.total_seconds()


FEWEST_FOR_DRIFT = 3
"""Trials of the control cell from which a slope has an interval."""


def drift_trend(at: Floats, rates: Floats) -> Trend | None:
    """Fit the logarithm of throughput (samples/s) over the seconds at which trials began; NaN is left out.

    Returns:
        The slope; None with fewer than three trials, or all of them at once.
    """
    finite = np.isfinite(at)
    at, logs = at[finite], np.log(rates[finite])
    if len(at) < FEWEST_FOR_DRIFT or np.ptp(at) <= 0:
        return None
    centred = at - at.mean()
    slope = (centred @ logs) / (centred @ centred)
    residuals = logs - logs.mean() - slope * centred
    half = t_half_width(np.sqrt(residuals @ residuals / (len(at) - 2) / (centred @ centred)), len(at) - 2)
    return Trend(Estimate(float(slope), float(slope - half), float(slope + half), len(at)), float(np.ptp(at)))


LETTERS = "ABCD"
UNKNOWN_AT_BEST = "B"
"""The best letter of a run of which a criterion cannot be judged."""


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


_DRIFT_LIMITS = (3.0, 6.0, 12.0)
CRITERIA = (
    Criterion(
        "flagged",
        (5.0, 15.0, 40.0),
        "% of measurements",
        "Measurements that carry a flag. Up to 5 %, most settings of eight repetitions have none. At 15 % each has "
        "about one, which its interval takes up. Beyond 40 % quiet is the exception.",
    ),
    Criterion(
        "spread",
        (3.0, 6.0, 12.0),
        "%",
        "Coefficient of variation between repetitions, median over settings. At 3 % fifteen repetitions show in nine "
        "of ten cases that two settings do not differ by 3 %. At 6 % they show it in one of fourteen. Paired "
        "measurements of a quiet machine vary by 2 to 7 %, beside other work by 20 % and more.",
    ),
    Criterion(
        "drift",
        _DRIFT_LIMITS,
        "%",
        "The least change of the control setting's throughput from the run's beginning to its end. It is the end of "
        "the 95 % interval of its slope that is nearer to none. An interval that holds both none and more than "
        "the last limit tells nothing. Repetitions take drift out of ratios, not out of single throughputs.",
    ),
    Criterion(
        "blocks",
        (8, 5, 2),
        "blocks",
        "Repetitions in which the settings were measured, median. From 8 on, stopping early does not narrow intervals "
        "unduly; with fewer than 2 there is no interval.",
        at_least=True,
    ),
    Criterion(
        "dependence",
        (100 * MOST_LAG1, 100 * MOST_LAG1, 60.0),
        "%",
        "How much of a measurement’s deviation from its setting returns in the next repetition. It is the lag-1 "
        "autocorrelation, if its 99 % interval excludes zero. Intervals take repetitions for independent. At 15 % "
        "they are a seventh too narrow, at 60 % half as wide as they should be. Beyond the limit of B verdicts on "
        "claims are withheld.",
    ),
    Criterion(
        "tails",
        (100 * MOST_FAR, 100 * MOST_FAR, 20.0),
        "% of measurements",
        f"Measurements farther than {FAR:g} median absolute deviations from their setting’s median. Those of normal "
        "noise do not count, and the 99 % interval must exclude zero. They come of two modes or of a heavy tail, "
        "with which the mean of few repetitions is not normal. Beyond the limit of B verdicts on claims are withheld.",
    ),
    Criterion(
        "shift",
        (100 * MOST_SHIFT, 100 * MOST_SHIFT, 10.0),
        "%",
        "How far measurements that lie far from their setting’s median move the mean of all. The 95 % interval must "
        "exclude zero. A few that are several times as slow matter more than many that are a little slower. A "
        "setting that had none of them by chance has a narrow interval in the wrong place. Beyond the limit of B, "
        "half the margin of “no difference”, verdicts on claims are withheld.",
    ),
)

OF_SCRIPTS = ("flagged", "drift", "blocks")
"""Criteria that the loop of a script is judged by."""
OF_SEARCHES = ("flagged", "drift")
"""Those of a search among its settings: how often each of them runs is what the search chooses."""


def flagged(trials: pd.DataFrame) -> pd.DataFrame:
    """Sum up what disturbed trials.

    Returns:
        A row a flag, in the order of ``columns.FLAGS``: ``flag``, ``trials`` (that carry it), ``watched`` (trials in
        which the machine told what the flag is about), ``share`` (of all trials, 0 to 1), ``worst`` (the largest value
        among those that carry it), ``measure`` (what that is: a column, or a name in ``probes.noise.DERIVED``) and
        ``unit``.
    """
    named = trials["flags"].astype(object).where(trials["flags"].notna(), "").str.split(",")
    given = trials.reindex(columns=list(noise.READS)).astype(object)
    rows = rows_of(given.where(given.notna(), None))
    shares = []
    for flag in FLAGS:
        carries = [flag in names for names in named]
        limits = [rule.limits[0] for rule in noise.RULES if rule.flag == flag]
        values = [
            max((value for limit in limits if (value := noise.measure(limit.measure, row)) is not None), default=None)
            for row in rows
        ]
        worst = [value for value, carried in zip(values, carries, strict=True) if carried and value is not None]
        shares.append(
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
    return pd.DataFrame(shares)


@dataclass(frozen=True, slots=True)
class Grade:
    """How far a run can be trusted, and why."""

    letter: str
    """A to D."""
    letters: Mapping[str, str | None]
    """Criterion to its letter; None where the trials do not tell."""
    reasons: tuple[str, ...]
    """A sentence a criterion, the worst first."""
    unwatched: tuple[str, ...]
    """Flags that could not be raised, as the machine told nothing of their cause in any trial."""
    blocks: int
    """Median over cells of the blocks in which they were measured."""


_Judged = tuple[float | None, str]
"""What a criterion judges, None where it is not known, and what that rests on in words."""


def grade(trials: pd.DataFrame, control: str | None = None) -> Grade:
    """Grade one run by ``CRITERIA``: its letter is that of the worst; ``control`` as in :func:`control_trials`.

    Raises:
        ValueError: the trials are of several runs.
    """
    if trials["run_id"].nunique() > 1:
        raise ValueError(
            f"measurements of {trials['run_id'].nunique()} runs; expected those of one: a grade is a run's"
        )
    ended = successful(trials).reset_index(drop=True)
    control_rows = control_trials(ended, control)
    script = len(ended) > 0 and ended["workload"].eq(SCRIPT).all()
    searched = script and ended["suite"].eq(TUNE).all()
    summary = flagged(ended)
    # Whether a trial is steady is known without a look at the machine.
    of_others = summary[summary["flag"] != "unsteady"]
    watched = bool(of_others["watched"].any())
    gpu = ended["device"].eq("cuda").fillna(False).any()
    unwatched = tuple(
        flag for flag in of_others.loc[of_others["watched"] == 0, "flag"] if gpu or not flag.startswith("gpu_")
    )
    measured = cells(trials).query("n > 0 and mode == 'train'" if script else "n > 0")
    blocks = int(measured["n"].median()) if len(measured) else 0
    judged = {
        "flagged": _flags(
            ended, summary, unwatched if watched else None, "stretches" if script and not searched else "measurements"
        ),
        "spread": _spread(measured, control_rows),
        "drift": _drift(
            ended, control_rows, "present setting" if searched else "loop’s pace" if script else "control setting"
        ),
        "blocks": (
            float(blocks),
            f"The loop was measured in {blocks} stretches"
            if script
            else f"Half of the settings were measured in {plural(blocks, 'repetition')} or more",
        ),
        **_shape(diagnose(trials)),
    }
    if script:
        judged = {name: judged[name] for name in (OF_SEARCHES if searched else OF_SCRIPTS)}
    letters = {
        criterion.name: None if (value := judged[criterion.name][0]) is None else criterion.letter(value)
        for criterion in CRITERIA
        if criterion.name in judged
    }
    if not watched and (letters["flagged"] or UNKNOWN_AT_BEST) <= UNKNOWN_AT_BEST:
        letters["flagged"] = None
    counts = {name: letter or UNKNOWN_AT_BEST for name, letter in letters.items()}
    ranked = sorted(counts, key=lambda name: counts[name], reverse=True)
    reasons = tuple(f"{letters[name] or f'{UNKNOWN_AT_BEST} at best'}: {judged[name][1]}." for name in ranked)
    return Grade(max(counts.values()), letters, reasons, unwatched, blocks)


def _flags(ended: pd.DataFrame, summary: pd.DataFrame, unwatched: tuple[str, ...] | None, noun: str) -> _Judged:
    """Share of the trials that carry a flag; ``unwatched`` is None where the machine told nothing at all."""
    blind = "; the machine told nothing of other work" if unwatched is None else ""
    if not len(ended):
        return None, f"No measurement ended well{blind}"
    pct = float(100 * ended["flags"].notna().mean())
    raised = summary[summary["trials"] > 0]
    shares = [f"{row['flag']} {per_cent(100 * row['trials'] / len(ended), 1)}" for row in rows_of(raised)]
    names = f" ({', '.join(shares)})" if shares else ""
    unknown = f"; not told here: {', '.join(unwatched)}" if unwatched else ""
    return pct, f"{per_cent(pct, 1)} of {len(ended):,} {noun} carry a flag{names}{unknown}{blind}"


def _spread(measured: pd.DataFrame, control_rows: pd.DataFrame) -> _Judged:
    """Median over cells of the coefficient of variation between blocks, in per cent."""
    spread = float(measured["cv_pct"].median())
    if np.isnan(spread):
        return None, "How measurements vary between repetitions is not known (no setting was measured in two)"
    rates = control_rows["samples_per_s"].to_numpy(dtype=np.float64)
    control = (
        f"; the control setting's measurements by {per_cent(100 * rates.std(ddof=1) / rates.mean(), 1)}"
        if len(rates) > 1
        else ""
    )
    return spread, f"Half of the settings vary by {per_cent(spread, 1)} or more between repetitions{control}"


def _drift(ended: pd.DataFrame, control: pd.DataFrame, what: str) -> _Judged:
    """The least change over the run that the control cell's interval holds; None when it holds none and the worst."""
    began = seconds_since_first(ended)
    at, rates = (
        np.asarray(column, dtype=np.float64)
        for column in (began.loc[control.index], control["samples_per_s"].astype("float64"))
    )
    if (trend := drift_trend(at, rates)) is None:
        return None, f"Drift is not known (the {what} was not measured often enough)"
    change = trend.over(float(began.max())).through(lambda ratio: 100 * (ratio - 1), "change")
    text = f"The {what} changed by {change.text()} over the run"
    least, most = sorted((abs(change.low), abs(change.high)))
    least = 0.0 if change.low <= 0 <= change.high else least
    if least <= _DRIFT_LIMITS[0] and most > _DRIFT_LIMITS[-1]:
        return None, f"{text}, too uncertain to grade"
    return least, text


def _shape(diagnosis: Diagnosis) -> dict[str, _Judged]:
    """Whether blocks depend on one another, and how many trials lie far from their cell's others."""
    if np.isnan(diagnosis.lag1):
        unknown = f"not known (fewer than {LEAST_CELLS} settings have {LEAST_BLOCKS} repetitions)"
        return {
            "dependence": (None, f"Whether measurements resemble those of the repetition before is {unknown}"),
            "tails": (None, f"How many measurements lie far from the others of their setting is {unknown}"),
            "shift": (None, f"How far such measurements move the mean is {unknown}"),
        }
    lag1, lo = (f"{number:.2f}".replace("-", "−") for number in (diagnosis.lag1, diagnosis.lag1_lo))
    shown = (
        f"{per_cent(100 * diagnosis.dependence, 0)} of a deviation is found again"
        if diagnosis.dependence
        else "not shown"
    )
    return {
        "dependence": (
            100 * diagnosis.dependence,
            f"Dependence on the repetition before: {shown} (lag-1 autocorrelation {lag1}, at least {lo} with 99 % "
            "confidence)",
        ),
        "tails": (
            100 * diagnosis.tails,
            f"{per_cent(100 * diagnosis.far_share, 1)} of measurements lie far from the others of their setting "
            f"(normal noise: {per_cent(100 * diagnosis.far_normal, 1)})",
        ),
        "shift": (
            100 * diagnosis.shift,
            f"Outlying measurements move the mean by {signed(100 * diagnosis.far_shift, 1)}"
            + ("" if diagnosis.shift else " (not certain)"),
        ),
    }
