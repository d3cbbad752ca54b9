"""A few steps on one clock: what main process, workers and device did at the same moments.

Two settings that differ in their workers only stand above one another over the same stretch of time. Every bar is a
single time of a single trial: it shows the order of events, which means hide, and nothing about spread. What is a stamp
and what is laid out from sums is said in ``analysis.timeline_bars``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.steps import WORKER_AXES
from feedrate.charts import workers
from feedrate.charts.figure import EMULATED, LOAD, PANEL_AXES, TRAIN, Figure, Panel, Row, Sheet, Slice, plain, slices
from feedrate.charts.theme import STAGE_COLOURS
from feedrate.questions.runs.analysis import DEVICE, account, bars, recorded, stretches
from feedrate.questions.runs.charts import _lanes as lanes
from feedrate.questions.runs.charts._lanes import ClaimResult
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME

TITLE = "A few steps, moment by moment"
QUESTION = "What do main process, workers and device do at the same moments?"
READS = "steps"
"""``draw`` takes the steps of a few trials of a run, as ``analysis.timeline`` chooses and joins them."""
_OLDER = (
    "Measured before workers stamped when they work: what they read, decoded, transformed and collated is known as "
    "sums, but not when, so that their lanes are left out."
)
_PAIR = (
    "Shown are two settings that differ in their workers only, and of such pairs the one in which more workers give "
    "most samples a second; both over the same stretch of time."
)
_SINGLE = (
    "Single times of one trial each, so they have no interval: the trial of median throughput, and the steps most like "
    "its mean. The numbers above the bars count batches in the order in which they are fetched."
)
_STAGES = (
    "Stages of loading are summed over a batch and drawn in order, in proportion; in truth they alternate sample by "
    "sample."
)
_CLOCKS = (
    "The device’s spans are laid end to end by its own clock; against the host’s clock they are put as early as no "
    "step’s first span begins before the host had its batch. A span contains launch gaps."
)
_AHEAD = (
    "With a prefetcher a step fetches and moves the batch of the next one. Copies on a stream of their own stand where "
    "the host ordered them; the device’s lane shows how long it waited for them."
)
_SLEEP = "An emulated step sleeps for a declared time, as an accelerator would keep the host waiting; no model runs."


def draw(steps: pd.DataFrame) -> Figure:
    """Draw the steps."""
    sheet, used = Sheet(TITLE, QUESTION), set[str]()
    for part in slices(steps, (TRAIN, EMULATED, LOAD)):
        told = _told(part)
        rows = lanes.drawn(told, part.kind)
        sheet.add(_panel(part, told, rows), _listed(part, rows), {})
        used |= {row["part"] for row in rows}
        for note in _notes(part, told):
            sheet.note(note)
    return sheet.figure(lanes.keys(used), "No single steps of a loader were recorded here.")


def _told(part: Slice) -> list[ClaimResult]:
    frames = [frame for _, frame in part.frame.groupby("trial_id", sort=False)]
    trials = [recorded(frame) for frame in frames]
    return [
        ClaimResult(
            _name(frame.iloc[0]), dict(frame.iloc[0]), trial, stretch, bars(trial, stretch), account(trial, stretch)
        )
        for frame, trial, stretch in zip(frames, trials, stretches(trials), strict=True)
    ]


def _name(cell: Any) -> str:
    """Name a cell's workers; an axis that an older run lacks was at its default."""
    values = {axis: BY_NAME[axis].default if pd.isna(cell[axis]) else cell[axis] for axis in WORKER_AXES}
    ahead = values["prefetch_factor"]
    return workers.who(values) + ("" if ahead == BY_NAME["prefetch_factor"].default else f", prefetch_factor {ahead}")


def _panel(part: Slice, told: Sequence[ClaimResult], rows: Sequence[Row]) -> Panel:
    _, *what = workers.what(told[0].cell, PANEL_AXES).split(", ")
    subtitle = [part.subtitle, ", ".join(name for name in what if not name.endswith(" px"))]
    message = " ".join(words.sentence(_said(part, one)) for one in told)
    return Panel(part.title, ", ".join(subtitle), message, lanes.picture(rows, told, part.title, subtitle), wide=True)


def _listed(part: Slice, rows: Iterable[Row]) -> Iterator[Row]:
    """Exactly the bars that are drawn, whole."""
    for row in rows:
        told = {heading: row[name] for heading, name in (("setting", "setting"), ("lane", "lane"), ("doing", "part"))}
        times = {"begins (ms)": row["begin"], "lasts (ms)": row["lasts"]}
        yield {**part.row(), **told, "batch": row["batch"], **times}


def _said(part: Slice, one: ClaimResult) -> str:
    """Say what one trial's steps add up to."""
    sums, pace = one.sums, f"{words.number(one.sums.step_ns / 1e6)} ms"
    text = f"{one.name}: {words.plural(one.stretch.count, 'step')} of {pace}"
    ready = (sums.lead_ns or 0) > 0
    if part.kind != LOAD:
        does = "loading its batches itself" if not one.trial.workers else "fetching" if ready else "waiting for data"
        text += f", of which the main process spends {words.percent(sums.waiting)} {does}"
    if sums.lead_ns is not None:
        side = "before" if ready else "after"
        text += f"; a batch is ready {words.number(abs(sums.lead_ns) / 1e6)} ms {side} it is asked for (median)"
        text += ", so that fetching is taking it over" if ready and part.kind != LOAD else ""
    if sums.hidden is not None and part.kind != LOAD:
        text += f", and {words.percent(sums.hidden)} of the workers’ work is done while nothing waits for it"
    if sums.idle is not None:
        text += f"; the device is idle for {words.percent(sums.idle)} of the time"
    return text


def _notes(part: Slice, told: Sequence[ClaimResult]) -> Iterator[str]:
    """What a reader must know: how the steps were chosen, what is laid out, what is not known."""
    if len(told) > 1:
        yield _PAIR
    yield _SINGLE
    yield f"All trials of {part.title}, {part.subtitle}: {'; '.join(map(_estimate, told))}."
    drawn = [bar for one in told for bar in one.bars]
    if any(bar.part in STAGE_COLOURS for bar in drawn):
        yield _STAGES
    yield from _gaps(told)
    if any(bar.lane == DEVICE for bar in drawn):
        yield _CLOCKS
    if any(plain(one.cell["prefetcher"]) not in (None, "none") for one in told):
        yield _AHEAD
    if part.kind == EMULATED:
        yield _SLEEP


def _estimate(one: ClaimResult) -> str:
    """The throughput of a setting over all of its trials."""
    spread = words.interval(plain(one.cell["lo"]), plain(one.cell["hi"]), int(one.cell["n"]))
    return f"{one.name}, {words.number(float(one.cell['samples_per_s']))} samples/s ({spread})"


def _gaps(told: Sequence[ClaimResult]) -> Iterator[str]:
    """What the picture leaves out."""
    for one in told:
        if one.trial.workers and not one.trial.stamped:
            yield _OLDER
        if (more := one.trial.workers - lanes.MOST_WORKERS) > 0 and one.trial.stamped:
            yield f"{one.name}: the lanes of {words.plural(more, 'more worker')} are left out."
