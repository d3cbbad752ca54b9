"""What the machine did while a run measured: who used its cores, its GPU, memory and load, with blocks and trials.

It shows what probes outside the measured process saw ten times a second, thinned to bins. It describes: nothing here is
an estimate, so that nothing has an interval, and a bin of a long run holds several trials.

The quantities are tracks above one another in one picture, each with a scale of its own, so that an eye can go straight
down from a peak to what happened meanwhile. A track spans some units of one vertical axis, whose labels say the true
values. Blocks are shaded behind the tracks, and a strip of trials stands above them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, chart, data, listed, plain, table
from feedrate.charts.plot import mark, unit_of
from feedrate.charts.theme import colour
from feedrate.questions.runs import telemetry as probes
from feedrate.schema import words
from feedrate.schema.axes import SCRIPT

_TITLE = "The machine over the run"
CPU = {
    "main": ("training process", colour("name-0")),
    "workers": ("workers", colour("name-2")),
    "others": ("everything else", colour("name-6")),
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
_SAID = {name: said for name, (said, _) in (*CPU.items(), *LINES.items())}
CACHED = {"before": colour("accent"), "after": colour("source")}
"""When the share of a trial's data in the page cache was counted, to its colour."""
_CACHE = "A measurement’s data in the page cache (%)"
_MISSING = "The probes saw nothing of this run."
UNIT = 46
"""CSS pixels of a track's unit."""
_HEAD = 0.42
"""Of a unit: what a track's name takes above it."""


@dataclass(frozen=True, slots=True)
class Track:
    """One quantity, or several that add up."""

    name: str
    """With its unit."""
    top: float
    """Value at its upper edge; 0 is the lower one."""
    stacked: tuple[tuple[str, str], ...] = ()
    """Key of a row and colour of what adds up, from below."""
    line: str = ""
    """Key of a row of a line; its least and most stand under the key with ``_least`` and ``_most``."""
    units: float = 1.0
    """Height without its name."""
    ticks: int = 2
    """Labels of its scale, 0 among them; none for 0."""
    base: float = 0.0
    """Where its lower edge lies, in units from below."""

    def at(self, value: str) -> str:
        """Where a value lies: an expression of Vega for an expression of the datum; null stays null."""
        return f"isValid({value})?{self.base:g}+{self.units / self.top:.6g}*min({value},{self.top:g}):null"


def stack(tracks: Sequence[Track]) -> tuple[list[Track], float]:
    """Put tracks below one another; returns them with the height of all of them in units."""
    tops = list(accumulate(track.units + _HEAD for track in tracks))
    return [replace(track, base=tops[-1] - top) for track, top in zip(tracks, tops, strict=True)], tops[-1]


STRIP = Track("Repetitions and measurements", 1.0, units=0.5, ticks=0)
_KINDS = {
    "cell": (0.3, colour("line"), ""),
    "control": (0.55, colour("muted"), "control setting"),
    "flagged": (0.8, colour("source"), "measurement with a flag"),
    "failed": (1.0, colour("name-1"), "measurement that failed"),
}
"""Trials by what is to be said of them, the last that holds: height, so that colour is not all that tells them apart,
colour, and name in the legend."""
MOST = 300
"""Trials that are drawn one by one; of more, only those of which something is to be said, so many at most."""
_NUMBERED = 12
"""Blocks that get their number, at most."""
_TITLED = 0.34
"""Share of a narrow picture's width that the strip's title takes, where no number stands."""


@chart(_TITLE, "What did the machine do while it was measured, and was it left alone?", "telemetry")
def telemetry(
    sheet: Sheet, samples: pd.DataFrame, cores: float | None = None, cores_logical: int | None = None
) -> Figure:
    """Draw the telemetry of a run."""
    if not len(samples):
        return sheet.figure((), _MISSING)
    samples = probes.in_order(samples)
    bins, ran = probes.binned(samples, cores_logical), _with_kind(probes.trials(samples))
    if not (shown := list(_tracks(bins, ran, cores))):
        return sheet.figure((), _MISSING)
    scale, unit = unit_of(float(bins["to_s"].max()))
    rows = _rows(bins, scale)
    blocks = ran.groupby("block").agg(from_s=("from_s", "min"), to_s=("to_s", "max")).reset_index()
    (strip, *placed), whole = stack([STRIP, *shown])
    step = words.number(float(bins["to_s"].iloc[0]), 2)
    subtitle = (
        f"{words.plural(len(blocks), 'repetition')}, {words.plural(len(ran), 'measurement')}, a point every {step} s"
    )
    base, span = alt.Chart(data(rows, *rows[0])), alt.Scale(domain=[0, rows[-1]["to"]], nice=False)
    axis = alt.Axis(grid=False, tickCount=6)
    time = alt.X("at:Q", title=f"{unit} since the run’s first sample", scale=span, axis=axis)
    layers = [
        *_shading(blocks, strip, whole, scale),
        mark("point", table([{"y": 0.0}]), {"opacity": 0}, y=_axis(placed, whole)),
        *(layer for track in placed for layer in _drawn(track, base, time)),
        *(layer for track in placed if track.name == _CACHE for layer in _cached(ran, track, bins, scale)),
        _bars(ran, strip, scale),
        _names([strip, *placed]),
        _hover(base, placed, whole, span, unit),
    ]
    message = _message(probes.quantities(samples, cores_logical).mean(), bins, ran, cores)
    panel = Panel.draw(_TITLE, subtitle, message, layers, 100 + round(UNIT * whole))
    sheet.add(panel, _listed(rows, unit))
    for note in _notes(step, ran, script=bool(samples["suite"].eq(SCRIPT).all())):
        sheet.note(note)
    return sheet.figure(_keys(bins, ran), _MISSING)


def _seen(bins: pd.DataFrame, name: str) -> bool:
    return bool(bins[name].notna().any())


def _rows(bins: pd.DataFrame, scale: float) -> list[dict[str, Any]]:
    """A row a bin: its time, its number of samples, and every quantity that was seen at all."""
    names = [name for name in probes.QUANTITIES if _seen(bins, name)]
    keys = [*names, *(f"{name}_{end}" for name in names if name in LINES for end in ("least", "most"))]
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
    stacked = tuple((name, tone) for name, (_, tone) in CPU.items() if _seen(bins, name))
    if stacked:
        most = float(bins[[name for name, _ in stacked]].sum(axis=1).max())
        top = cores if cores and most <= cores < 4 * most else nice(most)
        yield Track("CPU in use (cores)", top, stacked=stacked, units=1.7, ticks=3)
    for name, (title, least_top) in LINES.items():
        if _seen(bins, name):
            yield Track(title, nice(max(float(bins[f"{name}_most"].max()), least_top)), line=name)
    if ran["cached_before_pct"].notna().any():
        yield Track(_CACHE, 100.0)


def _hover(base: alt.Chart, placed: Sequence[Track], whole: float, span: alt.Scale, unit: str) -> alt.Chart:
    """A strip a bin over the whole height that is not seen and shows the bin's numbers."""
    keys = [key for track in placed for key in (*(key for key, _ in track.stacked), track.line) if key]
    shown = [alt.Tooltip(f"{key}:Q", title=_SAID[key], format=",.3~g") for key in keys]
    tooltip = [alt.Tooltip("from:Q", title=f"from, {unit}", format=".3~g"), *shown, alt.Tooltip("n:Q", title="samples")]
    strips = base.transform_calculate(y="0", y2=f"{whole:g}").mark_rect(opacity=0)
    chart: alt.Chart = strips.encode(x=alt.X("from:Q", scale=span), x2="to:Q", y="y:Q", y2="y2:Q", tooltip=tooltip)
    return chart


def _cached(ran: pd.DataFrame, track: Track, bins: pd.DataFrame, scale: float) -> Iterator[alt.Chart]:
    """A mark for every share of the page cache in every bin, to five per cent: trials that fall together are one."""
    width = float(bins["to_s"].iloc[0])
    for when in reversed(CACHED):
        counted = ran[ran[f"cached_{when}_pct"].notna()]
        shares = (counted[f"cached_{when}_pct"].astype("float64") / 5).round() * 5
        seen = sorted({(int(start / width), share) for start, share in zip(counted["from_s"], shares, strict=True)})
        rows = [
            {"at": (bin_index + 0.5) * width / scale, "y": track.base + track.units * share / track.top}
            for bin_index, share in seen
        ]
        yield mark("square", data(rows, "at", "y"), {"size": 8, "color": CACHED[when], "opacity": 1}, x="at:Q", y="y:Q")


def _keys(bins: pd.DataFrame, ran: pd.DataFrame) -> list[Key]:
    cached, there = ran["cached_before_pct"].notna().any(), set(ran["kind"])
    return [
        *(Key(f"CPU: {said}", tone) for name, (said, tone) in CPU.items() if _seen(bins, name)),
        Key("mean, from least to most", colour("accent")),
        *(Key(f"page cache: {when} a measurement", tone, "square") for when, tone in CACHED.items() if cached),
        *(Key(name, tone) for kind, (_, tone, name) in _KINDS.items() if name and kind in there),
    ]


def _listed(rows: Sequence[Row], unit: str) -> list[Row]:
    """A line a bin for the figure's table: means, and beside those of lines their least and most."""
    columns = {f"from ({unit})": "from", "samples": "n"}
    columns |= {f"CPU of {said} (cores)": name for name, (said, _) in CPU.items() if name in rows[0]}
    for name, (title, _) in LINES.items():
        if name in rows[0]:
            columns |= {title: name, f"{title}: least": f"{name}_least", f"{title}: most": f"{name}_most"}
    return listed(rows, {}, columns)


def _message(mean: pd.Series[float], bins: pd.DataFrame, ran: pd.DataFrame, cores: float | None) -> str:
    sentences = []
    if words.is_number(mean["main"]):
        busy = mean["main"] + (mean["workers"] if words.is_number(mean["workers"]) else 0.0)
        text = f"the measurements kept {words.number(busy, 2)}{f' of {cores:g}' if cores else ''} cores busy on average"
        sentences.append(
            f"{text}, everything else {words.number(mean['others'], 2)}" if words.is_number(mean["others"]) else text
        )
    if words.is_number(mean["gpu_util"]):
        text = f"the GPU ran kernels {words.percent(mean['gpu_util'] / 100)} of the time"
        drew = f" and drew {words.number(mean['gpu_power'])} W" if words.is_number(mean["gpu_power"]) else ""
        sentences.append(text + drew)
    if words.is_number(mean["load"]):
        least, most = float(bins["load_least"].min()), float(bins["load_most"].max())
        sentences.append(f"the load average lay between {words.number(least, 2)} and {words.number(most, 2)}")
    if words.is_number(mean["memory"]):
        sentences.append(f"at least {words.number(float(bins['memory_least'].min()))} GiB of memory stayed available")
    if words.is_number(mean["steal"]):
        most = float(bins["steal_most"].max())
        taken = f"{words.percent(mean['steal'] / 100)} of the cores, {words.number(most, 2)}\u00a0% at most"
        sentences.append(f"the hypervisor took {taken if most > 0 else 'nothing'}")
    return " ".join(words.sentence(text) for text in (*sentences, _count_marked(ran)))


def _notes(step: str, ran: pd.DataFrame, *, script: bool) -> Iterator[str]:
    runs = "measurement runs. Gaps: no sampling between measurements."
    if script:
        runs = "script runs. Measurements and repetitions are stretches of the script’s loop."
    yield f"Ten samples a second while a {runs}"
    yield f"A point is the mean of {step} s, the band its least and most; CPU shows means only."
    yield "These are observations, so they have no intervals. Every second repetition is shaded."
    if len(ran) > MOST:
        few = _drawn_one_by_one(ran)[1]
        some = f", one in {few} of them" if few > 1 else ""
        yield f"Of {len(ran):,} measurements only control measurements, flagged and failed ones are marked{some}."


def _axis(placed: Sequence[Track], whole: float) -> alt.Y:
    """The vertical axis: labels of each track's own scale."""
    values, labels = [], []
    for track in placed:
        for step in range(track.ticks):
            share = step / max(1, track.ticks - 1)
            values.append(round(track.base + share * track.units, 6))
            labels.append(f"{share * track.top:.3g}")
    lines = alt.Axis(
        values=values,
        tickCount=2 * len(values),  # Vega drops every other one of more values than it would have chosen itself
        labelExpr=f"{json.dumps(labels)}[indexof({json.dumps(values)},datum.value)]",
        labelOverlap=False,
        grid=True,
        domain=False,
        ticks=False,
    )
    return alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, whole], nice=False, zero=True), axis=lines)


def _names(placed: Sequence[Track]) -> alt.Chart:
    """The tracks' names, at the left above each."""
    rows = table([{"y": track.base + track.units + 0.16, "text": track.name} for track in placed])
    style = {"align": "left", "baseline": "middle", "fontSize": 11, "fontWeight": "bold", "color": colour("ink")}
    return mark("text", rows, style, x=alt.value(2), y="y:Q", text="text:N")


def _drawn(track: Track, base: alt.Chart, x: alt.X) -> list[alt.Chart]:
    """Draw a track's stack, or its line with least to most around it."""
    if track.line:
        ends = {"y": track.at(f"datum.{track.line}_least"), "y2": track.at(f"datum.{track.line}_most")}
        band = base.transform_calculate(**ends).mark_area(color=colour("accent"), opacity=0.22)
        line = base.transform_calculate(y=track.at(f"datum.{track.line}"))
        line = line.mark_line(color=colour("accent"), strokeWidth=1.4)
        return [band.encode(x=x, y="y:Q", y2="y2:Q"), line.encode(x=x, y="y:Q")]
    layers, below = [], "0"
    for key, tone in track.stacked:
        above = f"{below}+datum.{key}"
        valid = f"isValid(datum.{track.stacked[0][0]})"
        ends = {
            name: f"{valid}?{track.at(f'({end})').partition('?')[2]}" for name, end in (("y", below), ("y2", above))
        }
        area = base.transform_calculate(**ends).mark_area(color=tone, opacity=0.9)
        layers.append(area.encode(x=x, y="y:Q", y2="y2:Q"))
        below = above
    return layers


def nice(value: float) -> float:
    """Round up to 1, 2, 2.5 or 5 of a decade: the top of a scale."""
    if value <= 0:
        return 1.0
    decade = 10.0 ** math.floor(math.log10(value))
    return next(step * decade for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * decade >= value * 0.9999)


def _with_kind(ran: pd.DataFrame) -> pd.DataFrame:
    """Say of every trial what is to be said of it: ``kind``, a key of ``_KINDS``."""
    kind = pd.Series("cell", ran.index, dtype=object)
    kind = kind.mask(ran["role"].eq("control").fillna(False), "control")
    kind = kind.mask(ran["flags"].notna(), "flagged").mask(ran["outcome"].ne("ok").fillna(False), "failed")
    return ran.assign(kind=kind)


def _shading(blocks: pd.DataFrame, strip: Track, whole: float, scale: float) -> list[alt.Chart]:
    """Shade every second block over the whole height, and number the blocks where there is room."""
    rows: list[dict[str, Any]] = [
        {"from": row["from_s"] / scale, "to": row["to_s"] / scale, "block": int(row["block"]), "y": 0.0, "y2": whole}
        for row in rows_of(blocks)
    ]
    shaded = table([row for row in rows if row["block"] % 2 == 0])
    layers = [mark("rect", shaded, {"color": colour("heat-0")}, x="from:Q", x2="to:Q", y="y:Q", y2="y2:Q")]
    every = -(-len(rows) // _NUMBERED)
    free = _TITLED * max((row["to"] for row in rows), default=0.0)
    above = strip.base + strip.units + 0.16
    named = [
        {"at": (row["from"] + row["to"]) / 2, "y": above, "text": str(row["block"])}
        for row in rows
        if row["block"] % every == 0 and (row["from"] + row["to"]) / 2 > free and row["block"]
    ]
    if named:
        numbered = {"fontSize": 9, "color": colour("muted")}
        layers.append(mark("text", table(named), numbered, x="at:Q", y="y:Q", text="text:N"))
    return layers


def _drawn_one_by_one(ran: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The trials that are drawn, and of how many marked ones one is: all of them, or of many only marked ones."""
    if len(ran) <= MOST:
        return ran, 1
    marked = ran[ran["kind"].ne("cell")]
    one_in = max(1, -(-len(marked) // MOST))
    return marked.iloc[::one_in], one_in


def _bars(ran: pd.DataFrame, strip: Track, scale: float) -> alt.Chart:
    """Draw trials as bars."""
    rows = [
        {
            "from": row["from_s"] / scale,
            "to": max(row["to_s"], row["from_s"] + 0.1) / scale,
            "kind": row["kind"],
            "y": strip.base,
            "y2": strip.base + strip.units * _KINDS[row["kind"]][0],
        }
        for row in rows_of(_drawn_one_by_one(ran)[0])
    ]
    tones = alt.Scale(domain=list(_KINDS), range=[tone for _, tone, _ in _KINDS.values()])
    kind = alt.Color("kind:N", title=None, scale=tones, legend=None)
    drawn = data(rows, "from", "to", "kind", "y", "y2")
    return mark("rect", drawn, {}, x="from:Q", x2="to:Q", y="y:Q", y2="y2:Q", color=kind)


def _count_marked(ran: pd.DataFrame) -> str:
    """Say how many trials carry a flag, and how many failed."""
    flags, failed = int(ran["flags"].notna().sum()), int(ran["kind"].eq("failed").sum())
    text = f"{flags} of {words.plural(len(ran), 'measurement')} carr{'ies' if flags == 1 else 'y'} a flag"
    return f"{text}, {failed} failed" if failed else text
