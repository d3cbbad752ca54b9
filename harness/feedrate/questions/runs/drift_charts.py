"""The control cell over a run: whether the machine stayed the same.

Marks are single trials, the line is their mean, the band its 95 % interval over blocks. It does not show cells that
need something else of the machine than the control cell does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from feedrate.analysis import estimates, noise
from feedrate.analysis.blocks import successful
from feedrate.analysis.estimate import Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Row, Sheet, chart, listed, plain, table
from feedrate.charts.plot import Fields, Plot, Side, band, mark, unit_of
from feedrate.charts.theme import colour
from feedrate.questions.workers.charts import what, who
from feedrate.schema import words

_MISSING = "This run repeats no control setting, so its drift is unknown."
_KINDS = {"plain": (colour("name-0"), "circle"), "flagged": (colour("source"), "diamond")}
"""Colour and shape of marks around the mean; a flagged trial is one of which something is to be said."""
_KEYS = (
    Key("a measurement", *_KINDS["plain"]),
    Key("a measurement with a flag", *_KINDS["flagged"]),
    Key("mean and its 95 % interval", colour("accent")),
)


@chart("Drift of the control setting", "Did the machine stay the same?")
def drift(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw the control cell's throughput over time; the table has a line a trial, then the mean, then the change."""
    ended = successful(trials).reset_index(drop=True)
    control, seconds = noise.control_trials(ended), noise.seconds_since_first(ended)
    at = seconds.loc[control.index].to_numpy(dtype=np.float64)
    if len(control) < 2 or not np.isfinite(at).any():
        return sheet.figure((), _MISSING if len(control) < 2 else "This run does not say when its measurements began.")
    rates, run_s = control["samples_per_s"].to_numpy(dtype=np.float64), float(seconds.max())
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
            "lo": None,
            "hi": None,
        }
        for second, rate, block, flags in zip(at, rates, control["block"], control["flags"], strict=True)
        if np.isfinite(second)
    ]
    change = trend.over(run_s).through(_percent_off, "change") if trend else None
    subtitle = f"{words.plural(len(control), 'measurement')}, % from their mean"
    panel = _plot(rows, estimate, unit, run_s / scale).panel(
        "The control setting over the run", subtitle, _message(len(control), estimate, change, run_s)
    )
    sheet.add(panel, _listed(rows, estimate, change, unit))
    cell = {str(name): plain(value) for name, value in control.iloc[0].items()}
    setting = what(cell) if cell["storage_format"] is not None else cell["mode"]
    sheet.note(f"The control setting: {setting}{'' if cell['num_workers'] is None else f', {who(cell)}'}.")
    sheet.note(
        "The mean has Student’s t over repetitions; the trend, least squares on logs over measurements. "
        "Drift cancels in ratios, which compare within a repetition. It does not in single throughputs."
    )
    return sheet.figure(_KEYS, _MISSING)


def _plot(rows: Sequence[Row], mean: Estimate, unit: str, whole: float) -> Plot:
    """Declare marks, and behind them the line of their mean in its band."""
    spread = {"domain": [0, whole], "nice": False, "padding": 6}
    x = Side("at", f"{unit} since the run’s first measurement", spread, {"grid": False, "tickCount": 5})
    away = {"format": "+.3~g", "tickCount": 5}
    y = Side("value", "throughput, % from the mean", {"zero": False, "nice": 5}, away)
    style = {"color": colour("accent"), "strokeWidth": 1.75}
    behind = [mark("rule", table([{"mean": 0.0}]), style, **y.along("y", "mean"))]
    if mean.known:
        behind.insert(0, band(y, "y", (_percent_off(mean.low / mean.value), _percent_off(mean.high / mean.value))))
    tooltip: Fields = {"at:Q": (unit, ".3~g"), "block:Q": "repetition", "rate:Q": ("samples per second", ",.4~g")}
    tooltip = {**tooltip, "value:Q": ("from the mean, %", "+.3~g"), "flags:N": ""}
    return Plot(rows, x, y, "kind", _KINDS, tooltip=tooltip, behind=behind, size=50)


def _listed(rows: Sequence[Row], mean: Estimate, change: Estimate | None, unit: str) -> list[Row]:
    columns = {"repetition": "block", unit: "at", "samples per s": "rate", "%": "value", "flags": "flags"}
    lines = listed(rows, {"what": "measurement"}, columns)
    lines.append({"what": "mean over repetitions", "samples per s": mean.value, **_ends(mean)})
    if change:
        lines.append({"what": "change over the run, %", "%": change.value, **_ends(change)})
    return lines


def _message(count: int, mean: Estimate, change: Estimate | None, run_s: float) -> str:
    ran = f"The control setting ran {count} times in {words.plural(mean.n, 'repetition')}"
    summary = words.sentence(f"{ran}: {mean.with_n(' samples/s')}")
    if change is None:
        return f"{summary} {count} measurements are too few for a trend."
    scale, unit = unit_of(run_s)
    changed = change.text(n=words.plural(change.n, "measurement"))
    verdict = "may be no change" if change.low <= 0 <= change.high else "is a drift"
    return f"{summary} Over the run’s {words.number(run_s / scale, 2)} {unit} it changed by {changed}. That {verdict}."


def _percent_off(ratio: float) -> float:
    """Give how far a ratio is from 1, in per cent."""
    return 100 * (ratio - 1)


def _ends(estimate: Estimate) -> dict[str, float | None]:
    """Give the ends of an interval and what it rests on as a figure's table has them."""
    return {"low": plain(estimate.low), "high": plain(estimate.high), "n": estimate.n}
