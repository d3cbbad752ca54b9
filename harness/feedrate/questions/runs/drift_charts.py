"""The control cell over a run: its drift, and what comes out when it is compared with itself (an A/A test).

Both panels have one grammar: marks are single trials or blocks, the line is their mean, the band its 95 % interval over
blocks. It does not show cells that need something else of the machine than the control cell does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from feedrate.analysis import estimates, noise
from feedrate.analysis.blocks import successful
from feedrate.analysis.contrasts import verdicts
from feedrate.analysis.estimate import Estimate, Floats
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.noise import Trend, pooled_ratio, self_ratios
from feedrate.charts.figure import Figure, Key, Row, Sheet, chart, listed, plain, table
from feedrate.charts.plot import Fields, Plot, Side, band, mark, rule, unit_of
from feedrate.charts.theme import colour
from feedrate.questions.workers.charts import what, who
from feedrate.schema import words
from feedrate.schema.metrics import SAME

_MISSING = "This run repeats no control setting, so its drift is unknown."
_KINDS = {"plain": (colour("name-0"), "circle"), "flagged": (colour("source"), "diamond")}
"""Colour and shape of marks around a mean; a flagged trial is one of which something is to be said."""
_KEYS = (
    Key("a measurement, or a repetition’s ratio", *_KINDS["plain"]),
    Key("a measurement with a flag", *_KINDS["flagged"]),
    Key("mean and its 95 % interval", colour("accent")),
)


@chart(
    "Drift, and the control setting against itself",
    "Did the machine stay the same, and does a setting equal itself?",
)
def drift(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw the control cell's throughput over time, and the ratio of its own trials by block."""
    ended = successful(trials).reset_index(drop=True)
    control = noise.control_trials(ended)
    if len(control) < 2:
        return sheet.figure((), _MISSING)
    seconds = noise.seconds_since_first(ended)
    if (at := seconds.loc[control.index].to_numpy(dtype=np.float64))[np.isfinite(at)].size:
        _add_trend(sheet, control, at, float(seconds.max()))
    _add_self_comparison(sheet, control)
    cell = {str(name): plain(value) for name, value in control.iloc[0].items()}
    setting = what(cell) if cell["storage_format"] is not None else cell["mode"]
    sheet.note(f"The control setting: {setting}{'' if cell['num_workers'] is None else f', {who(cell)}'}.")
    sheet.note(
        "The mean has Student’s t over repetitions; the trend, least squares on logs over measurements. "
        "Drift cancels in ratios, which compare within a repetition. It does not in single throughputs."
    )
    return sheet.figure(_KEYS, _MISSING)


def _add_trend(sheet: Sheet, control: pd.DataFrame, at: Floats, run_s: float) -> None:
    """Add the panel of throughput over time; its table has a line a trial, then the mean, then the trend."""
    rates = control["samples_per_s"].to_numpy(dtype=np.float64)
    estimate, trend = Estimate.of_row(rows_of(estimates.cells(control))[0]), noise.drift_trend(at, rates)
    scale, unit = unit_of(run_s)
    rows = [
        {
            "at": float(second) / scale,
            "value": _percent_off(float(rate) / estimate.value),
            "rate": float(rate),
            "block": int(block),
            "kind": "plain" if pd.isna(flags) else "flagged",
            "flags": "none" if pd.isna(flags) else str(flags).replace(",", ", "),
        }
        for second, rate, block, flags in zip(at, rates, control["block"], control["flags"], strict=True)
        if np.isfinite(second)
    ]
    tooltip: Fields = {"at:Q": (unit, ".3~g"), "block:Q": "repetition", "rate:Q": ("samples per second", ",.4~g")}
    tooltip = {**tooltip, "value:Q": ("from the mean, %", "+.3~g"), "flags:N": ""}
    spread = {"domain": [0, run_s / scale], "nice": False, "padding": 6}
    x = Side("at", f"{unit} since the run’s first measurement", spread, {"grid": False, "tickCount": 5})
    plot = _around_mean(rows, x, "throughput, % from the mean", estimate, estimate.value, tooltip)
    subtitle = f"{words.plural(len(control), 'measurement')}, % from their mean"
    columns = {"repetition": "block", unit: "at", "samples per s": "rate", "%": "value", "flags": "flags"}
    lines = listed(rows, {"what": "measurement"}, columns)
    lines.append({"what": "mean over repetitions", "samples per s": estimate.value, **_ends(estimate), "n": estimate.n})
    if trend:
        hour = trend.over(3600.0).through(_percent_off, "change")
        lines.append({"what": "trend, % an hour", "%": hour.value, **_ends(hour), "n": hour.n})
    message = _trend_message(len(control), estimate, trend, run_s)
    sheet.add(plot.panel("The control setting over the run", subtitle, message), lines)


def _trend_message(count: int, estimate: Estimate, trend: Trend | None, run_s: float) -> str:
    ran = f"The control setting ran {count} times in {words.plural(estimate.n, 'repetition')}"
    summary = words.sentence(f"{ran}: {estimate.with_n(' samples/s')}")
    if trend is None:
        return f"{summary} {count} measurements are too few for a trend."
    whole, (scale, unit) = trend.over(run_s), unit_of(run_s)
    change = whole.through(_percent_off, "change").text(n=words.plural(whole.n, "measurement"), write=words.signed)
    verdict = "may be no change" if whole.low <= 1 <= whole.high else "is a drift"
    return f"{summary} Over the run’s {words.number(run_s / scale, 2)} {unit} it changed by {change}. That {verdict}."


def _add_self_comparison(sheet: Sheet, control: pd.DataFrame) -> None:
    """Add the panel of the control cell's A/A test, or a note on why there is none."""
    compared = self_ratios(control)
    if not len(compared):
        sheet.note("The control setting ran once a repetition: too few to compare it with itself.")
        return
    estimate = pooled_ratio(compared)
    rows = [
        {"at": int(row["block"]), "value": _percent_off(row["ratio"]), "kind": "plain", **row}
        for row in rows_of(compared)
    ]
    lines = listed(rows, {"what": "A/A, a repetition"}, {"repetition": "at", "B ÷ A": "ratio", "n": "pairs"})
    lines.append({"what": "A/A, all repetitions", "B ÷ A": estimate.value, **_ends(estimate), "n": estimate.n})
    axis = {"grid": False, "tickMinStep": 1, "format": "d", "tickCount": 6}
    x = Side("at", "repetition", {"nice": False, "zero": False, "padding": 10}, axis)
    tooltip: Fields = {"at:Q": "repetition", "ratio:Q": ("B ÷ A", ".4~g"), "pairs:Q": ""}
    plot = _around_mean(rows, x, "B ÷ A − 1, %", estimate, 1.0, tooltip)
    plot = replace(plot, before=[rule(plot.y, "y", 0.0, "ink")])
    subtitle = f"A/A: {words.plural(int(compared['pairs'].sum()), 'pair')} of its own measurements"
    sheet.add(plot.panel("The control setting against itself", subtitle, _self_message(estimate)), lines)
    sheet.note(
        "A/A: two successive measurements of the control setting, compared as if they were two settings; sides "
        "alternate. The truth is 0 % (dashed); one run in twenty misses it by chance."
    )


def _self_message(estimate: Estimate) -> str:
    """Say whether the interval holds 1, as it should, and whether it is narrow enough to rule out a difference."""
    ratio, margin = estimate.with_n(write="{:.3f}".format), words.per_cent(100 * (SAME[1] - 1), 0)
    text = f"Compared with itself, the control setting comes out {ratio} as fast."
    if not estimate.known:
        return text
    if not estimate.low <= 1 <= estimate.high:
        chance = "The interval leaves out 1: one run in twenty does so by chance."
        return f"{text} {chance} If others of this machine do, too, do not trust its small differences."
    same = verdicts(estimate.value, estimate.low, estimate.high) == "no difference"
    width = f"and stays within {margin}" if same else f"but is too wide to rule out {margin}"
    return f"{text} The interval holds 1, as it should, {width}."


def _percent_off(ratio: float) -> float:
    """Give how far a ratio is from 1, in per cent."""
    return 100 * (ratio - 1)


def _around_mean(rows: Sequence[Row], x: Side, title: str, mean: Estimate, of: float, tooltip: Fields) -> Plot:
    """Declare the band and the line of a mean, and marks around it, in per cent of a value."""
    y = Side("value", title, {"zero": False, "nice": 5}, {"format": "+.3~g", "tickCount": 5})
    value, low, high = (_percent_off(end / of) for end in (mean.value, mean.low, mean.high))
    line = mark(
        "rule", table([{"mean": value}]), {"color": colour("accent"), "strokeWidth": 1.75}, **y.along("y", "mean")
    )
    behind = [*([band(y, "y", (low, high))] if words.is_number(low) else []), line]
    rows = [{**row, "lo": None, "hi": None} for row in rows]
    return Plot(rows, x, y, "kind", _KINDS, tooltip=tooltip, behind=behind, size=50)


def _ends(estimate: Estimate) -> dict[str, float | None]:
    """Give the ends of an interval as a figure's table has them."""
    return {"low": plain(estimate.low), "high": plain(estimate.high)}
