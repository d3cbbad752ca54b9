"""What the machine did while a run measured: who used its cores, its GPU, memory and load, with blocks and trials.

It shows what probes outside the measured process saw ten times a second, thinned to bins. It describes: nothing here is
an estimate, so that nothing has an interval, and a bin of a long run holds several trials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, data, plain, sized, table
from feedrate.charts.marks import unit_of
from feedrate.charts.theme import colour
from feedrate.questions.runs import telemetry
from feedrate.questions.runs.charts import _tracks as tracks
from feedrate.questions.runs.charts._tracks import Placed, Track
from feedrate.schema import words

TITLE = "The machine over the run"
QUESTION = "What did the machine do while it was measured, and was it left alone?"
READS = "telemetry"
CPU = {"main": colour("name-0"), "workers": colour("name-2"), "others": colour("name-6")}
SPOKEN = {
    "main": "training process",
    "workers": "workers",
    "others": "everything else",
    "gpu_util": "GPU utilization, %",
    "gpu_power": "GPU power, W",
    "gpu_memory": "GPU memory, GiB",
    "load": "load average",
    "steal": "steal, %",
    "memory": "memory available, GiB",
}
LINES = {
    "gpu_util": ("GPU utilization (%)", 100.0),
    "gpu_power": ("GPU power (W)", 0.0),
    "gpu_memory": ("GPU memory in use (GiB)", 0.0),
    "load": ("Load average over a minute", 0.0),
    "steal": ("Taken by the hypervisor (% of all cores)", 5.0),
    "memory": ("Memory available (GiB)", 0.0),
}
"""Quantities with a line of their own, in their order from above: its name, and where its scale ends at the least, as a
hundredth of a per cent must not look like a storm."""
CACHED = {"before": colour("accent"), "after": colour("source")}
"""When the share of a trial's data in the page cache was counted, to its colour."""
_CACHE = "A trial’s data in the page cache (%)"
_MISSING = "The probes saw nothing of this run."


def draw(samples: pd.DataFrame, cores: float | None = None, cores_logical: int | None = None) -> Figure:
    """Draw the telemetry of a run."""
    sheet = Sheet(TITLE, QUESTION)
    if not len(samples):
        return sheet.figure((), _MISSING)
    samples = telemetry.in_order(samples)
    bins, ran = telemetry.binned(samples, cores_logical), tracks.with_kind(telemetry.trials(samples))
    if not (shown := list(_tracks(bins, ran, cores))):
        return sheet.figure((), _MISSING)
    scale, unit = unit_of(float(bins["to_s"].max()))
    rows, blocks = _rows(bins, scale), telemetry.blocks(ran)
    (strip, *placed), whole = tracks.place([tracks.STRIP, *shown])
    step = words.number(float(bins["to_s"].iloc[0]), 2)
    subtitle = f"{words.plural(len(blocks), 'block')}, {words.plural(len(ran), 'trial')}, a point every {step} s"
    layers = [
        *tracks.shading(blocks, strip, whole, scale),
        *_layers(placed, whole, rows, unit),
        *(layer for each in placed if each.track.name == _CACHE for layer in _cached(ran, each, bins, scale)),
        tracks.bars(ran, strip, scale),
        tracks.names([strip, *placed]),
        _hover(placed, whole, rows, unit),
    ]
    chart = sized(layers, TITLE, subtitle, 100 + round(tracks.UNIT * whole))
    message = _message(telemetry.means(samples, cores_logical), bins, ran, cores)
    sheet.add(Panel(TITLE, subtitle, message, chart), _listed(rows, unit), {})
    for note in (*_notes(step, bins), *tracks.notes(ran)):
        sheet.note(note)
    return sheet.figure([*_keys(bins, ran), *tracks.keys(ran)], _MISSING)


def _seen(bins: pd.DataFrame, name: str) -> bool:
    return bool(bins[name].notna().any())


def _rows(bins: pd.DataFrame, scale: float) -> list[dict[str, Any]]:
    """A row a bin: its time, its number of samples, and every quantity that was seen at all."""
    names = [name for name in telemetry.QUANTITIES if _seen(bins, name)]
    keys = [f"{name}{end}" for name in names for end in ("", "_least", "_most")]
    return [
        {
            "from": row["from_s"] / scale,
            "to": row["to_s"] / scale,
            "at": (row["from_s"] + row["to_s"]) / 2 / scale,
            "n": row["n"],
            **{key: plain(row[key]) for key in keys},
        }
        for row in rows_of(bins)
    ]


def _tracks(bins: pd.DataFrame, ran: pd.DataFrame, cores: float | None) -> Iterator[Track]:
    stacked = tuple((name, tone) for name, tone in CPU.items() if _seen(bins, name))
    if stacked:
        most = float(bins[[name for name, _ in stacked]].sum(axis=1).max())
        top = cores if cores and most <= cores < 4 * most else tracks.nice(most)
        yield Track("CPU in use (cores)", top, stacked=stacked, units=1.7, ticks=3)
    for name, (title, least_top) in LINES.items():
        if _seen(bins, name):
            yield Track(title, tracks.nice(max(float(bins[f"{name}_most"].max()), least_top)), line=name)
    if ran["cached_before_pct"].notna().any():
        yield Track(_CACHE, 100.0)


def _layers(placed: Sequence[Placed], whole: float, rows: Sequence[Row], unit: str) -> list[alt.Chart]:
    """The axes, and what the tracks show."""
    title = f"{unit} since the run’s first sample"
    x = alt.X("at:Q", title=title, scale=_span(rows), axis=alt.Axis(grid=False, tickCount=6))
    base = _chart(rows)
    scales = alt.Chart(table([{"y": 0.0}])).mark_point(opacity=0).encode(y=tracks.axis(placed, whole))
    return [scales, *(layer for each in placed for layer in tracks.drawn(each, base, x))]


def _chart(rows: Sequence[Row]) -> alt.Chart:
    """A chart of all that is drawn of bins: one table for lines and hover, with as many digits as can be seen."""
    unused = {f"{name}{end}" for name in CPU for end in ("_least", "_most")}
    short = [
        {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in row.items()
            if name not in unused
        }
        for row in rows
    ]
    return alt.Chart(table(short))


def _span(rows: Sequence[Row]) -> alt.Scale:
    return alt.Scale(domain=[0, rows[-1]["to"]], nice=False)


def _hover(placed: Sequence[Placed], whole: float, rows: Sequence[Row], unit: str) -> alt.Chart:
    """A strip a bin over the whole height that is not seen and shows the bin's numbers."""
    when = alt.Tooltip("from:Q", title=f"from, {unit}", format=".3~g")
    tooltip = [when, *tracks.tooltips(placed, SPOKEN), alt.Tooltip("n:Q", title="samples")]
    strips = _chart(rows).transform_calculate(y="0", y2=f"{whole:g}").mark_rect(opacity=0)
    x = alt.X("from:Q", scale=_span(rows))
    found: alt.Chart = strips.encode(x=x, x2=alt.X2("to:Q"), y=alt.Y("y:Q"), y2=alt.Y2("y2:Q"), tooltip=tooltip)
    return found


def _cached(ran: pd.DataFrame, each: Placed, bins: pd.DataFrame, scale: float) -> Iterator[alt.Chart]:
    """A mark for every share of the page cache in every bin, to five per cent: trials that fall together are one."""
    width = float(bins["to_s"].iloc[0])
    for when in reversed(CACHED):
        known = ran[ran[f"cached_{when}_pct"].notna()]
        shares = (known[f"cached_{when}_pct"].astype("float64") / 5).round() * 5
        seen = sorted({(int(start / width), share) for start, share in zip(known["from_s"], shares, strict=True)})
        rows = [
            {"at": (place + 0.5) * width / scale, "y": each.base + each.track.units * share / each.track.top}
            for place, share in seen
        ]
        marks = alt.Chart(data(rows, "at", "y"))
        yield marks.mark_square(size=8, color=CACHED[when], opacity=1).encode(x=alt.X("at:Q"), y=alt.Y("y:Q"))


def _keys(bins: pd.DataFrame, ran: pd.DataFrame) -> list[Key]:
    cached = [Key(f"page cache: {when} a trial", tone, "square") for when, tone in CACHED.items()]
    return [
        *(Key(f"CPU: {SPOKEN[name]}", tone) for name, tone in CPU.items() if _seen(bins, name)),
        Key("mean, from least to most", colour("accent")),
        *(cached if ran["cached_before_pct"].notna().any() else []),
    ]


def _listed(rows: Sequence[Row], unit: str) -> list[dict[str, Any]]:
    """A line a bin for the figure's table: means, and beside those of lines their least and most."""
    heads = {key: f"CPU of {said} (cores)" if key in CPU else said for key, said in SPOKEN.items() if key in rows[0]}
    for key in [key for key in heads if key in LINES]:
        heads |= {f"{key}_{end}": f"{SPOKEN[key]}: {end}" for end in ("least", "most")}
    order = sorted(heads, key=lambda key: (list(SPOKEN).index(key.removesuffix("_least").removesuffix("_most")), key))
    return [
        {f"from ({unit})": row["from"], "samples": row["n"], **{heads[key]: row[key] for key in order}} for row in rows
    ]


def _message(mean: Mapping[str, float], bins: pd.DataFrame, ran: pd.DataFrame, cores: float | None) -> str:
    said = []
    if words.known(mean["main"]):
        own = mean["main"] + (mean["workers"] if words.known(mean["workers"]) else 0.0)
        text = f"the trials kept {words.number(own, 2)}{f' of {cores:g}' if cores else ''} cores busy on average"
        said.append(
            f"{text}, everything else {words.number(mean['others'], 2)}" if words.known(mean["others"]) else text
        )
    if words.known(mean["gpu_util"]):
        text = f"the GPU ran kernels {words.percent(mean['gpu_util'] / 100)} of the time"
        drew = f" and drew {words.number(mean['gpu_power'])} W" if words.known(mean["gpu_power"]) else ""
        said.append(text + drew)
    if words.known(mean["load"]):
        least, most = float(bins["load_least"].min()), float(bins["load_most"].max())
        said.append(f"the load average lay between {words.number(least, 2)} and {words.number(most, 2)}")
    if words.known(mean["memory"]):
        said.append(f"at least {words.number(float(bins['memory_least'].min()))} GiB of memory stayed available")
    if words.known(mean["steal"]):
        most = float(bins["steal_most"].max())
        taken = f"{words.percent(mean['steal'] / 100)} of the cores, {words.number(most, 2)}\u00a0% at most"
        said.append(f"the hypervisor took {taken if most > 0 else 'nothing'}")
    return " ".join(words.sentence(text) for text in (*said, tracks.count_marked(ran)))


def _notes(step: str, bins: pd.DataFrame) -> Iterator[str]:
    yield (
        f"Probes look ten times a second while a trial runs. A point is the mean of {step} s of samples, the band "
        "around it their least and most; CPU shows means only. Gaps: a fresh process got ready, and nobody looked."
    )
    yield "It describes what was seen and estimates nothing: there is no interval. Every second block is shaded."
    if _seen(bins, "main") and not _seen(bins, "others"):
        yield "How many cores the machine has is not recorded, so that what everything else used is not known."
