"""What the machine did while a run measured: who used its cores, its GPU, memory and load, on one clock.

It shows what probes outside the measured process saw ten times a second, thinned to bins. It describes: nothing here is
an estimate, so that nothing has an interval, and a bin of a long run holds several trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, chart, data, listed, plain
from feedrate.charts.plot import Fields, Looks, Plot, Side, hover, keys, mark, tone, unit_of
from feedrate.charts.theme import colour
from feedrate.questions.runs import telemetry as probes
from feedrate.schema import words
from feedrate.schema.axes import SCRIPT

_MEAN = "mean, from least to most"
_CPU = "CPU in use (cores)"
TRACKS: Mapping[str, Sequence[str]] = {
    _CPU: probes.CPU,
    "GPU utilization (%)": ("gpu_util",),
    "GPU power (W)": ("gpu_power",),
    "GPU memory in use (GiB)": ("gpu_memory",),
    "Load average over a minute": ("load",),
    "Taken by the hypervisor (% of all cores)": ("steal",),
    "Memory available (GiB)": ("memory",),
}
"""Panels from above, and what each draws (``telemetry.QUANTITIES``)."""
_TOPS = {"GPU utilization (%)": 100.0, "Taken by the hypervisor (% of all cores)": 5.0}
"""Where scales end at the least, as a hundredth of a per cent must not look like a storm."""
_WHO = {"main": "training process", "workers": "workers", "others": "everything else"}
LOOKS: Looks = {
    "training process": (colour("name-0"), "bar"),
    "workers": (colour("name-2"), "bar"),
    "everything else": (colour("name-6"), "bar"),
    _MEAN: (colour("accent"), "bar"),
}
MARKED = {
    "flags": ("measurement with a flag", colour("source")),
    "outcome": ("measurement that failed", colour("name-1")),
}
"""Columns of samples that mark a bin, with what is said of it and its colour."""
HEIGHT = 160
"""Of a panel, in CSS pixels."""
_NUMBER = ",.3~g"
_MISSING = "The probes saw nothing of this run."


@chart("The machine over the run", "What did the machine do while it was measured, and was it left alone?", "telemetry")
def telemetry(
    sheet: Sheet, samples: pd.DataFrame, cores: float | None = None, cores_logical: int | None = None
) -> Figure:
    """Draw the telemetry of a run."""
    if not len(samples):
        return sheet.figure((), _MISSING)
    samples = probes.in_order(samples)
    bins = probes.binned(samples, cores_logical)
    seen = {title: [name for name in parts if bins[name].notna().any()] for title, parts in TRACKS.items()}
    seen = {title: names for title, names in seen.items() if names}
    if not seen:
        return sheet.figure((), _MISSING)
    whole = float(bins["to_s"].max())
    scale, unit = unit_of(whole)
    x = Side("at", f"{unit} since the first sample", {"domain": [0, whole / scale], "nice": False}, {"grid": False})
    marked = {column: _marked(samples, column, bins, scale) for column in MARKED}
    mean = probes.quantities(samples, cores_logical).mean()
    for title, names in seen.items():
        layers = [_stacked(bins, names, x, scale, cores)] if title == _CPU else _curve(bins, title, x, scale)
        if title == next(iter(seen)):
            layers += [_strip(rows, x, MARKED[column][1]) for column, rows in marked.items() if rows]
        message = _used(mean, cores, samples) if title == _CPU else _message(bins, title, mean)
        sheet.add(Panel.draw(title, [], message, layers, HEIGHT), ())
    sheet.list(_listed(bins, seen, unit, scale))
    runs = "measurement runs. Gaps: no sampling between measurements."
    if samples["suite"].eq(SCRIPT).all():
        runs = "script runs. Measurements and repetitions are stretches of the script’s loop."
    sheet.note(f"{words.plural(samples['block'].nunique(), 'repetition')}. Ten samples a second while a {runs}")
    sheet.note(
        f"A point is the mean of {words.number(float(bins['to_s'].iloc[0]), 2)} s, the band its least and most; CPU "
        "shows means. These are observations, so they have no intervals."
    )
    used = {_WHO.get(name, _MEAN) for names in seen.values() for name in names}
    return sheet.figure([*keys(LOOKS, used), *(Key(*MARKED[column]) for column in MARKED if marked[column])], _MISSING)


def _side(top: float) -> Side:
    scale = {"domain": [0, top or 1.0], "nice": 3}
    return Side("value", None, scale, {"format": ",.3~g", "tickCount": 3, "domain": False})


def _curve(bins: pd.DataFrame, title: str, x: Side, scale: float) -> list[alt.Chart]:
    """A line of means in a band from least to most; none where nothing was seen."""
    (name,) = TRACKS[title]
    ends = {"value": name, "lo": f"{name}_least", "hi": f"{name}_most"}
    rows = [
        {"at": (row["from_s"] + row["to_s"]) / 2 / scale, "what": _MEAN}
        | {key: plain(row[column]) for key, column in ends.items()}
        for row in rows_of(bins)
    ]
    tooltip: Fields = {"at:Q": ("at", ".3~g"), "value:Q": ("mean", _NUMBER)}
    tooltip = {**tooltip, "lo:Q": ("least", _NUMBER), "hi:Q": ("most", _NUMBER)}
    y = _side(max(_TOPS.get(title, 0.0), float(bins[f"{name}_most"].max())))
    return Plot(rows, x, y, "what", LOOKS, curve=True, tooltip=tooltip).layers()


def _stacked(bins: pd.DataFrame, names: Sequence[str], x: Side, scale: float, cores: float | None) -> alt.Chart:
    """Means on top of one another, a bar a bin, up to the machine's cores where these are not far more."""
    rows = []
    for row in rows_of(bins):
        below = 0.0
        for name in names:
            if (used := plain(row[name])) is not None:
                ends = {"from": row["from_s"] / scale, "to": row["to_s"] / scale, "below": below, "above": below + used}
                rows.append({"what": _WHO[name], "cores": used, **ends})
                below += used
    top = max(row["above"] for row in rows)
    y = _side(cores if cores and top <= cores < 4 * top else top)
    looks = {_WHO[name]: LOOKS[_WHO[name]] for name in names}
    tooltip = hover({"from:Q": ("from", ".3~g"), "what:N": "", "cores:Q": ("cores", _NUMBER)})
    places = {**x.along("x", "from"), "x2": "to:Q", **y.along("y", "below"), "y2": "above:Q"}
    return mark("rect", data(rows, *rows[0]), {}, **places, color=tone("what", looks), tooltip=tooltip)


def _marked(samples: pd.DataFrame, column: str, bins: pd.DataFrame, scale: float) -> list[Row]:
    """The bins in which a measurement with a flag ran, or one that failed."""
    marks = samples["flags"].notna() if column == "flags" else samples["outcome"].ne("ok").fillna(False)
    places = set(bins["from_s"].to_numpy().searchsorted(samples.loc[marks, "t_s"], side="right") - 1)
    return [{"from": row["from_s"] / scale, "to": row["to_s"] / scale} for row in rows_of(bins.iloc[sorted(places)])]


def _strip(rows: Sequence[Row], x: Side, tint: str) -> alt.Chart:
    """Mark stretches at the upper edge."""
    edge = {"y": alt.value(0), "y2": alt.value(5)}
    return mark("rect", data(rows, "from", "to"), {"color": tint}, **x.along("x", "from"), x2="to:Q", **edge)


def _listed(bins: pd.DataFrame, seen: Mapping[str, Sequence[str]], unit: str, scale: float) -> list[Row]:
    """A line a bin for the figure's table: the mean, the least and the most of every quantity."""
    columns = {f"from ({unit})": "from", "samples": "n"}
    for title, names in seen.items():
        for name in names:
            heading = f"{title}, {_WHO[name]}" if name in _WHO else title
            columns |= {heading: name, f"{heading}: least": f"{name}_least", f"{heading}: most": f"{name}_most"}
    rows = rows_of(bins.assign(**{"from": bins["from_s"] / scale}))
    return listed(({key: plain(row[key]) for key in columns.values()} for row in rows), {}, columns)


def _used(mean: pd.Series[float], cores: float | None, samples: pd.DataFrame) -> str:
    """Who used the cores, and how many measurements carry a flag, or failed."""
    busy = mean["main"] + (mean["workers"] if words.is_number(mean["workers"]) else 0.0)
    text = f"the measurements kept {words.number(busy, 2)}{f' of {cores:g}' if cores else ''} cores busy on average"
    if words.is_number(mean["others"]):
        text += f", everything else {words.number(mean['others'], 2)}"
    ran = samples.drop_duplicates("trial_id")
    flags, failed = int(ran["flags"].notna().sum()), int(ran["outcome"].ne("ok").fillna(False).sum())
    counted = f"{flags} of {words.plural(len(ran), 'measurement')} carr{'ies' if flags == 1 else 'y'} a flag"
    return " ".join(map(words.sentence, (text, f"{counted}, {failed} failed" if failed else counted)))


def _message(bins: pd.DataFrame, title: str, mean: pd.Series[float]) -> str:
    """The mean, the least and the most of a panel's quantity."""
    (name,) = TRACKS[title]
    least, most = words.number(bins[f"{name}_least"].min()), words.number(bins[f"{name}_most"].max())
    return f"{title}: {words.number(mean[name])} on average, from {least} to {most}."
