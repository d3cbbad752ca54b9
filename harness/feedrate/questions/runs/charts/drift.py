"""The control cell over a run: its drift, and what comes out when it is compared with itself (an A/A test).

Both panels have one grammar: marks are single trials or blocks, the line is their mean, the band its 95 % interval over
blocks. It does not show cells that need something else of the machine than the control cell does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from feedrate.analysis import noise
from feedrate.analysis.blocks import Floats, successful
from feedrate.analysis.noise import Estimate, Trend
from feedrate.charts import marks, self_comparison, workers
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, plain, sized, table
from feedrate.charts.marks import unit_of
from feedrate.charts.theme import colour
from feedrate.questions.accuracy.chart import signed
from feedrate.schema import words

TITLE = "Drift, and the control cell against itself"
QUESTION = "Did the machine stay the same, and does a cell that is compared with itself come out equal?"
READS = "trials"
_MISSING = "No control cell ran again and again in this run, so that drift cannot be seen."
_KEYS = (
    Key("a trial, or a block’s ratio", *marks.KINDS["plain"]),
    Key("a trial with a flag", *marks.KINDS["flagged"]),
    Key("mean and its 95 % interval", colour("accent")),
    Key("trend", colour("muted"), "rule"),
)
_LONG_S = 1200.0
"""From here on a trend is told by the hour in words; of a shorter run that would be guessed too far ahead."""


def draw(trials: pd.DataFrame) -> Figure:
    """Draw the control cell's throughput over time, and the ratio of its own trials by block."""
    ended = successful(trials).reset_index(drop=True)
    own = noise.control_trials(ended)
    sheet = Sheet(TITLE, QUESTION)
    if len(own) < 2:
        return sheet.figure((), _MISSING)
    seconds = noise.seconds_since_first(ended)
    if (at := seconds.loc[own.index].to_numpy(dtype=np.float64))[np.isfinite(at)].size:
        _add(sheet, own, at, float(seconds.max()))
    self_comparison.add(sheet, own)
    cell = {str(name): plain(value) for name, value in own.iloc[0].items()}
    told = workers.what(cell) if cell["storage_format"] is not None else cell["mode"]
    sheet.note(f"The control cell: {told}{'' if cell['num_workers'] is None else f', {workers.who(cell)}'}.")
    sheet.note(
        "The mean’s interval is Student’s t over blocks; the trend’s, least squares on logs, over trials. Blocks take "
        "drift out of ratios of cells, not out of single throughputs."
    )
    return sheet.figure(_KEYS, _MISSING)


def _add(sheet: Sheet, own: pd.DataFrame, at: Floats, run_s: float) -> None:
    """Add the panel of throughput over time."""
    rates = own["samples_per_s"].to_numpy(dtype=np.float64)
    found, trend = noise.mean_rate(own), noise.drift_trend(at, rates)
    scale, unit = unit_of(run_s)
    rows = [
        {
            "at": float(second) / scale,
            "value": marks.percent_off(float(rate) / found.value),
            "rate": float(rate),
            "block": int(block),
            "kind": "plain" if pd.isna(flags) else "flagged",
            "flags": "none" if pd.isna(flags) else str(flags).replace(",", ", "),
        }
        for second, rate, block, flags in zip(at, rates, own["block"], own["flags"], strict=True)
        if np.isfinite(second)
    ]
    title, subtitle = "The control cell over the run", f"{words.plural(len(own), 'trial')}, % from their mean"
    hover = [
        alt.Tooltip("at:Q", title=unit, format=".3~g"),
        alt.Tooltip("block:Q"),
        alt.Tooltip("rate:Q", title="samples per second", format=",.4~g"),
        alt.Tooltip("value:Q", title="from the mean, %", format="+.3~g"),
        alt.Tooltip("flags:N"),
    ]
    mean = [marks.percent_off(end / found.value) for end in (found.value, found.lo, found.hi)]
    x = alt.X(
        "at:Q",
        title=f"{unit} since the run’s first trial",
        scale=alt.Scale(domain=[0, run_s / scale], nice=False, padding=6),
        axis=alt.Axis(grid=False, tickCount=5),
    )
    layers = marks.around_mean(rows, x, "throughput, % from the mean", mean, hover)
    layers[-1:-1] = [_slope(trend, at, rates, found.value, scale)] if trend else []
    chart = sized(layers, title, subtitle, marks.HEIGHT)
    message = _message(len(own), found, trend, run_s)
    sheet.add(Panel(title, subtitle, message, chart), _listed(rows, found, trend, unit), {})


def _slope(trend: Trend, at: Floats, rates: Floats, mean: float, scale: float) -> alt.Chart:
    """The fitted line, from the first trial to the last."""
    known = np.isfinite(at)
    middle, start = float(at[known].mean()), float(at[known].min())
    over = float(np.log(rates[known]).mean() - np.log(mean))
    rows = [
        {"at": second / scale, "value": float(100 * np.expm1(over + trend.slope * (second - middle)))}
        for second in (start, start + trend.seconds)
    ]
    line = alt.Chart(table(rows)).mark_line(color=colour("muted"), strokeDash=[4, 3], strokeWidth=1.5)
    drawn: alt.Chart = line.encode(x=alt.X("at:Q"), y=alt.Y("value:Q"))
    return drawn


def _listed(rows: Sequence[Row], found: Estimate, trend: Trend | None, unit: str) -> list[dict[str, Any]]:
    """A line a trial, then the mean, then the trend."""
    lines: list[dict[str, Any]] = [
        {
            "what": "trial",
            "block": row["block"],
            unit: row["at"],
            "samples per s": row["rate"],
            "%": row["value"],
            "flags": row["flags"],
        }
        for row in rows
    ]
    lines.append({"what": "mean over blocks", "samples per s": found.value, **marks.ends(found), "n": found.n})
    if trend:
        hour = trend.over(3600.0)
        shares = {name: None if end is None else marks.percent_off(end) for name, end in marks.ends(hour).items()}
        lines.append({"what": "trend, % an hour", "%": marks.percent_off(hour.value), **shares, "n": hour.n})
    return lines


def _message(count: int, found: Estimate, trend: Trend | None, run_s: float) -> str:
    said = words.sentence(
        f"The control cell ran {count} times in {words.plural(found.n, 'block')}: {words.number(found.value)} "
        f"samples/s ({words.interval(found.lo, found.hi, found.n)})"
    )
    if trend is None:
        return f"{said} {count} trials are too few for a trend."
    whole, (scale, unit) = trend.over(run_s), unit_of(run_s)
    told = f"over the run’s {words.number(run_s / scale, 2)} {unit} it changed by {_changed(whole)}"
    told += ", which may be none" if whole.lo <= 1 <= whole.hi else ", which is not none"
    if run_s >= _LONG_S:
        told += f"; {_changed(trend.over(3600.0))} an hour"
    return f"{said} {words.sentence(told)}"


def _changed(ratio: Estimate) -> str:
    value, lo, hi = (signed(marks.percent_off(end)) for end in (ratio.value, ratio.lo, ratio.hi))
    return f"{value} (95\u00a0% interval {lo} to {hi}, n = {words.plural(ratio.n, 'trial')})"
