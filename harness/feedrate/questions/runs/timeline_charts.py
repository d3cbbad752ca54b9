"""A few steps on one clock: what main process, workers and device did at the same moments.

Two settings that differ in their workers only stand above one another over the same stretch of time. Every bar is a
single time of a single trial: it shows the order of events, which means hide, and nothing about spread. What is a stamp
and what is laid out from sums is said in ``questions.runs.timeline``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimate import RATE, Estimate
from feedrate.analysis.steps import WORKER_AXES
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    EMULATED_NOTE,
    PANEL_AXES,
    WIDTH,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    Slice,
    chart,
    data,
    listed,
    plain,
    slices,
    table,
)
from feedrate.charts.plot import Fields, Side, dashed, hover, mark, tone
from feedrate.charts.theme import PHASE_COLOURS, STAGE_COLOURS, colour
from feedrate.pages import descriptions
from feedrate.questions.loader.charts import LABELS
from feedrate.questions.runs import timeline as steps_of
from feedrate.questions.runs.timeline import COPIES, DEVICE, GETITEM, IDLE, MAIN, OWN, WORKER, Bar, Recorded, Stretch
from feedrate.questions.workers.charts import what, who
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME, KNOBS, SCRIPT
from feedrate.store.manifest import Tuned

MOST_WORKERS = 8
"""Lanes of workers; the others of a trial are left out, and it is said."""
PARTS = {
    **LABELS,
    **{stage: f"{stage} (loading)" for stage in STAGE_COLOURS},
    GETITEM: "__getitem__ (loading)",
    IDLE: "device idle",
}
_TONES = {**PHASE_COLOURS, **STAGE_COLOURS, GETITEM: STAGE_COLOURS["transform"], IDLE: colour("line")}
_PLOT = WIDTH - 90
"""About so many pixels are left for time on the narrowest screen."""
_DIGIT = 6
"""Pixels of a digit of a batch's number."""
_LOWER = 4
"""Pixels by which bars lie below the middle of their lanes, to leave room for numbers."""
_LANE, _HEAD = 21, 87
"""Pixels of a lane, and of titles and axis."""
_IN_WHO = ("num_workers", "loader", "start_method")
"""Axes that the name of a cell's workers says."""
_PAIR = "Two settings that differ in workers only: the pair in which more workers gain most. Both over the same time."
_SEARCHED = "Before: the script’s own setting. After: the one that was found. Both over the same time."
_CHOSEN = (
    "so no interval: the one of median throughput, and the steps most like its mean. Numbers above bars count batches."
)
_STAGES = "Loading stages are sums over a batch, drawn one after another; really they alternate sample by sample."
_CLOCKS = (
    "The device’s spans follow its own clock, end to end. They start as early as they can: no step starts before the "
    "host had its batch. A span contains launch gaps."
)
_STARVED = "The device’s lane shows when it waited for a batch, by CUDA events; its work is not recorded."
_AHEAD = (
    "With a prefetcher, a step fetches and moves the next batch. Copies stand where the host ordered them; the "
    "device’s lane shows how long it waited for them."
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a comparison."""

    name: str
    """Its workers."""
    cell: Mapping[str, Any]
    """Its columns in the frame of steps."""
    recorded: Recorded
    stretch: Stretch
    bars: list[Bar]

    @property
    def lanes(self) -> list[str]:
        """Lanes from the top: main process, its own loading, workers by number, device."""
        present = {bar.lane for bar in self.bars}
        numbered = sorted((lane for lane in present if lane.startswith(WORKER)), key=lambda lane: int(lane.split()[1]))
        return [lane for lane in (MAIN, OWN, *numbered[:MOST_WORKERS], COPIES, DEVICE) if lane in present]


@chart("A few steps, moment by moment", "What do main process, workers and device do at the same moments?", "steps")
def timeline(sheet: Sheet, steps: pd.DataFrame, tuned: Tuned | None = None) -> Figure:
    """Draw the steps; those of a search before and after it."""
    used = set[str]()
    if tuned:
        sheet.title = "A few steps, before and after"
    columns = {"setting": "setting", "lane": "lane", "doing": "part", "batch": "batch"}
    columns |= {"begins (ms)": "begin", "lasts (ms)": "lasts"}
    for subset in slices(steps, (TRAIN, EMULATED, LOAD)):
        trials = _trials(subset, ("before", "after") if tuned and tuned.present != tuned.recommended else ())
        rows = list(_rows(trials, subset.kind))
        sheet.add(_panel(subset, trials, rows), listed(rows, subset.row(), columns))
        used |= {row["part"] for row in rows}
        for note in _notes(subset, trials, searched=tuned is not None):
            sheet.note(note)
    keys = [Key(PARTS[name], _TONES[name], dashed=name == EMULATED) for name in PARTS if name in used]
    return sheet.figure(keys, "No single steps of a loader were recorded here.")


def _trials(subset: Slice, when: Sequence[str]) -> list[Trial]:
    frames = [frame for _, frame in subset.frame.groupby("trial_id", sort=False)]
    cells = [dict(frame.iloc[0]) for frame in frames]
    steps = [steps_of.recorded(frame) for frame in frames]
    names = [_name(cell, cells) for cell in cells]
    if len(when) == len(names):
        names = [f"{word}: {name}" for word, name in zip(when, names, strict=True)]
    return [
        Trial(name, cell, recording, stretch, steps_of.bars(recording, stretch))
        for name, cell, recording, stretch in zip(names, cells, steps, steps_of.stretches(steps), strict=True)
    ]


def _name(cell: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> str:
    """Name a cell's workers, and what else of it the others do not have."""
    workers = {name: BY_NAME[name].default if pd.isna(cell[name]) else cell[name] for name in _IN_WHO}
    free = [name for name in ("batch_size", *WORKER_AXES, *KNOBS) if name not in _IN_WHO]
    unlike = {name: cell[name] for name in free if len({plain(other[name]) for other in cells}) > 1}
    return ", ".join(filter(None, (who(workers), descriptions.changed(unlike))))


def _rows(trials: Sequence[Trial], kind: str) -> Iterator[Row]:
    """The bars that are drawn, milliseconds; ``from`` and ``to`` are what of each lies in the picture."""
    for index, one in enumerate(trials):
        for bar in one.bars:
            if bar.lane in one.lanes:
                yield {
                    "setting": one.name,
                    "lane": bar.lane,
                    "y": f"{index}:{bar.lane}",
                    "part": EMULATED if kind == EMULATED and bar.part == "forward" else bar.part,
                    "batch": bar.batch,
                    "begin": bar.begin / 1e6,
                    "lasts": (bar.end - bar.begin) / 1e6,
                    "from": max(0.0, bar.begin) / 1e6,
                    "to": min(bar.end, one.stretch.span_ns) / 1e6,
                }


def _panel(subset: Slice, trials: Sequence[Trial], rows: Sequence[Row]) -> Panel:
    """Draw bars, the numbers of their batches above them, and a line of words above each trial's lanes."""
    _, *loaded = what(trials[0].cell, PANEL_AXES).split(", ")
    subtitle = [subset.subtitle, ", ".join(name for name in loaded if not name.endswith(" px"))]
    lanes = [f"{index}:{lane}" for index, one in enumerate(trials) for lane in ("", *one.lanes)]
    span = trials[0].stretch.span_ns / 1e6
    scale, ticks = {"domain": [0, span], "nice": False}, {"tickCount": 6, "labelOverlap": True, "domain": False}
    x = Side("from", "milliseconds since the first of these steps began", scale, ticks)
    label = {"labelExpr": "split(datum.label, ':')[1]", "ticks": False, "domain": False, "labelOffset": _LOWER}
    y = Side("y", None, {"paddingInner": 0, "paddingOuter": 0}, label, tuple(lanes))
    rates = [words.number(float(one.cell["trial_samples_per_s"])) for one in trials]
    heads = [
        {"y": f"{index}:", "at": 0, "text": f"{one.name}: {rate} samples/s"}
        for index, (one, rate) in enumerate(zip(trials, rates, strict=True))
    ]
    layers = [
        _bars(rows).encode(**x.along("x"), x2=alt.X2("to:Q"), **y.along("y")),
        _text(_numbers(rows, span), "center", -6, "muted", 9).encode(**x.along("x", "at"), **y.along("y")),
        _text(heads, "left", 3, "ink", 11).encode(**x.along("x", "at"), **y.along("y")),
    ]
    message = " ".join(words.sentence(_message(subset, one)) for one in trials)
    return replace(Panel.draw(subset.title, subtitle, message, layers, _HEAD + _LANE * len(lanes)), wide=True)


def _bars(rows: Sequence[Row]) -> alt.Chart:
    """Bars in the colours of their parts; a sleep has a dashed edge, as it must not be taken for computing."""
    parts = {PARTS[name]: (_TONES[name], "") for name in PARTS if any(row["part"] == name for row in rows)}
    named = [{**row, "what": PARTS[row["part"]]} for row in rows]
    times: Fields = {"begin:Q": ("begins, ms", ",.4~g"), "lasts:Q": ("lasts, ms", ",.3~g")}
    tooltip = hover({"what:N": "doing", "batch:Q": "", **times})
    bars = data(named, "y", "what", "batch", "from", "to", "begin", "lasts")
    style = {"height": 11, "yOffset": _LOWER, "strokeWidth": 0.5}
    return mark("bar", bars, style, color=tone("what", parts), tooltip=tooltip, **dashed("what", PARTS[EMULATED]))


def _text(rows: Sequence[Row], align: Any, shift: int, ink: str, size: int) -> alt.Chart:
    style = {"align": align, "baseline": "middle", "dy": shift, "fontSize": size, "color": colour(ink)}
    return mark("text", table(rows), style, text="text:N")


def _numbers(rows: Sequence[Row], span: float) -> list[dict[str, Any]]:
    """Number batches above the lanes in which they are prepared, and above their steps, where there is room."""
    ends: dict[tuple[str, int], tuple[float, float]] = {}
    for row in rows:
        if row["lane"] not in (DEVICE, COPIES, OWN):
            begin, end = ends.get((row["y"], row["batch"]), (row["from"], row["to"]))
            ends[row["y"], row["batch"]] = min(begin, row["from"]), max(end, row["to"])
    labels: list[dict[str, Any]] = []
    for (y, batch), (begin, end) in sorted(ends.items(), key=lambda entry: (entry[0][0], sum(entry[1]))):
        at, room = (begin + end) / 2, _DIGIT * (len(str(batch)) + 0.5) * span / _PLOT
        if not labels or labels[-1]["y"] != y or at - labels[-1]["at"] > room:
            labels.append({"y": y, "at": float(f"{at:.5g}"), "text": str(batch)})
    return labels


def _message(subset: Slice, one: Trial) -> str:
    """Say what one trial's steps add up to."""
    step_ns, fetching, idle = steps_of.sums(one.recorded, one.stretch)
    text = f"{one.name}: {words.plural(one.stretch.count, 'step')} of {words.number(step_ns / 1e6)} ms"
    if subset.kind != LOAD:
        does = "fetching batches" if one.recorded.workers else "loading its batches itself"
        text += f", of which the main process spends {words.percent(fetching)} {does}"
    return text if idle is None else f"{text}; the device is idle for {words.percent(idle)} of the time"


def _notes(subset: Slice, trials: Sequence[Trial], *, searched: bool) -> Iterator[str]:
    """What a reader must know: how the steps were chosen, what is laid out, what is left out or not known."""
    script = trials[0].cell["workload"] == SCRIPT
    if len(trials) > 1:
        yield _SEARCHED if searched else _PAIR
    yield f"{'One stretch of the loop' if script else 'One measurement each'}, {_CHOSEN}"
    rates = [Estimate.of_row({name: plain(one.cell[name]) for name in RATE}) for one in trials]
    named = (f"{one.name}, {rate.with_n(' samples/s')}" for one, rate in zip(trials, rates, strict=True))
    yield f"All {'stretches' if script else 'measurements'} of {subset.title}, {subset.subtitle}: {'; '.join(named)}."
    drawn = [bar for one in trials for bar in one.bars]
    if any(bar.part in (*STAGE_COLOURS, GETITEM) for bar in drawn):
        yield _STAGES
    if any(one.recorded.workers > MOST_WORKERS for one in trials):
        yield f"Workers beyond the first {MOST_WORKERS} have no lane."
    if any(bar.lane == DEVICE for bar in drawn):
        yield _STARVED if script else _CLOCKS
    if any(plain(one.cell["prefetcher"]) not in (None, "none") for one in trials):
        yield _AHEAD
    if subset.kind == EMULATED:
        yield EMULATED_NOTE
