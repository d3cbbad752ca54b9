"""Recorded steps → bars on one clock: what training process, workers and device did in the same stretch of time.

All begins and ends are nanoseconds since the stretch began, on the host's monotonic clock, which all processes share.
What is a stamp and what is laid out:

- The training process' phases share their borders' stamps: each begins where the one before ended.
- A worker's batch begins and ends with stamps of its own. Within it stages alternate sample by sample; only their sums
  are known, so they are drawn one after the other, in proportion. What no stage accounts for is spread over them.
- A batch that the training process prepares by itself has such stamps too. One without stamps is left out.
- The device's spans follow one another between events on one stream, so that adding up gives their distances. Where its
  clock stands against the host's is not recorded: it is put as early as possible without any step's first span
  beginning before the host had its batch, and had issued the copy of the next where copies have a stream of their own.
  Where the device waits for the host at least once, that is exact.
- Copies on a stream of their own have a length; they are put where the host ordered them.
- Of a script's device only idle times are known, each of which ends when a batch came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from feedrate.analysis.estimate import Floats
from feedrate.schema.columns import PHASES, WORKER_STAGES

STEPS_SHOWN = 6
"""Of the slowest trial of a comparison."""
MOST_STEPS = 14
"""Of the fastest, so that its bars can be told apart; the slowest shows fewer then, but at least ``LEAST_STEPS``."""
LEAST_STEPS = 2
MAIN, OWN, WORKER, DEVICE, COPIES = "main process", "its loading", "worker", "device", "copy stream"
"""Lanes; a worker's has its number behind the word."""
GETITEM = "getitem"
"""The data set's own code, where its stages cannot be told apart."""
IDLE = "idle"
"""The part of a device's lane in which nothing was asked of it."""
_COMPUTE = ("h2d", "forward", "backward", "optimizer")
_MOVED_BEHIND = ("fetch", "forward", "backward", "h2d", "optimizer", "other")
"""Phases where a batch is moved ahead on the compute stream: behind both passes of the step before."""


class Bar(NamedTuple):
    """One stretch of work of one lane."""

    lane: str
    """``MAIN``, ``OWN``, ``WORKER`` and a number, ``DEVICE`` or ``COPIES``."""
    part: str
    """A phase, a stage of ``columns.WORKER_STAGES``, ``GETITEM``, or ``IDLE``."""
    batch: int
    """Place in the window of the step that fetched it, for the lanes of loading; else of the step."""
    begin: float
    """ns since the stretch began; negative: before it."""
    end: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded steps of one trial: arrays have a value a step."""

    places: list[int]
    """Of the steps in the window."""
    phases: Mapping[str, Floats]
    """Host phases in the order in which a step runs them, ns; those that are null are not there."""
    borders: Floats
    """When each step began, and when the last one ended, ns since the first began; steps + 1."""
    stages: Mapping[str, Floats]
    """Stages of loading, ns of each step's batch; NaN where nothing was stamped."""
    worker: Floats
    """Which worker prepared each step's batch; NaN: the training process, or it is not known."""
    begun: Floats
    """When that began, ns; NaN where it was not stamped."""
    ended: Floats
    compute: Mapping[str, Floats]
    """Spans on the device's compute stream, ``IDLE`` first, ns; empty where they were not timed."""
    copies: Floats | None
    """Copies on a stream of their own, ns."""
    workers: int
    """How many workers the cell has."""

    @property
    def step_ns(self) -> float:
        """Mean wall clock of a step."""
        return float(self.borders[-1]) / len(self.places)


def recorded(frame: pd.DataFrame) -> Recorded:
    """Read the steps of one trial."""
    row = frame.iloc[0]
    prefetcher = None if pd.isna(row["prefetcher"]) else str(row["prefetcher"])
    order = _MOVED_BEHIND if prefetcher == "next_batch" else PHASES
    host = {phase: _floats(frame, f"{phase}_ns") for phase in order}
    phases = {phase: times for phase, times in host.items() if np.isfinite(times).all()}

    stages = (GETITEM, "collate") if frame["worker_getitem_ns"].notna().any() else WORKER_STAGES
    device = {name: _floats(frame, f"device_{name}_ns") for name in (IDLE, *_COMPUTE, "h2d_exposed")}
    exposed, copies = device.pop("h2d_exposed"), None
    if prefetcher == "stream":
        copies, device["h2d"] = device["h2d"], exposed
    spans = {name: device[name] for name in (IDLE, *order) if name in device and np.isfinite(device[name]).all()}
    timed = IDLE in spans
    return Recorded(
        places=[int(batch) for batch in frame["place"]],
        phases=phases,
        borders=np.concatenate([[0.0], np.cumsum(np.sum(list(phases.values()), axis=0))]),
        stages={stage: _floats(frame, f"worker_{stage}_ns") for stage in stages},
        worker=_floats(frame, "worker"),
        begun=_floats(frame, "worker_begun_ns"),
        ended=_floats(frame, "worker_ended_ns"),
        compute=spans if timed else {},
        copies=copies if timed else None,
        workers=0 if pd.isna(row["num_workers"]) else int(row["num_workers"]),
    )


def _floats(frame: pd.DataFrame, column: str) -> Floats:
    return np.asarray(frame[column].astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which consecutive steps of a trial are looked at, and for how long."""

    first: int
    """Row of the first."""
    count: int
    """Steps that lie in it as a whole."""
    span_ns: float
    """Wall clock that is looked at; the same for all trials of a comparison."""


def stretches(trials: Sequence[Recorded]) -> list[Stretch]:
    """Choose for every trial of a comparison the steps that are most like all of its recorded ones.

    All are looked at for the same time: ``STEPS_SHOWN`` steps of the slowest, or as many as keep the fastest below
    ``MOST_STEPS``; and no longer than any was recorded, as it would look idle afterwards.
    """
    slow, fast = max(trials, key=lambda trial: trial.step_ns), min(trials, key=lambda trial: trial.step_ns)
    count = max(LEAST_STEPS, min(STEPS_SHOWN, int(MOST_STEPS * fast.step_ns / slow.step_ns)))
    count = min(count, len(slow.places))
    first = _typical(slow, count)
    span = float(min(slow.borders[first + count] - slow.borders[first], *(trial.borders[-1] for trial in trials)))
    bars = []
    for trial in trials:
        first = _typical(trial, max(1, min(len(trial.places), round(span / trial.step_ns))), span)
        whole = int(np.searchsorted(trial.borders, trial.borders[first] + span * (1 + 1e-9), side="right")) - 1 - first
        bars.append(Stretch(first, max(1, whole), span))
    return bars


def _typical(trial: Recorded, count: int, span_ns: float = 0.0) -> int:
    """Row of the first of so many steps, recorded for so long, whose wall clock and wait are nearest to the means."""
    starts = np.arange(len(trial.places) - count + 1)
    starts = starts[trial.borders[starts] + span_ns <= trial.borders[-1] * (1 + 1e-9)]
    waits = np.concatenate([[0.0], np.cumsum(trial.phases["fetch"])])
    far = np.zeros(len(starts))
    for sums in (trial.borders, waits):
        far += np.abs(sums[starts + count] - sums[starts] - count * sums[-1] / len(trial.places))
    numbers = np.unique(trial.worker[np.isfinite(trial.worker)])
    known_until = min((trial.ended[trial.worker == number].max() for number in numbers), default=np.inf)
    seen = trial.borders[starts + count] <= known_until
    return int(np.argmin(np.where(seen, far, np.inf) if seen.any() else far))


def bars(trial: Recorded, stretch: Stretch) -> list[Bar]:
    """Lay out what is known of a stretch."""
    origin = trial.borders[stretch.first]
    everything = (*_host(trial), *_loading(trial), *_on_device(trial))
    moved = (bar._replace(begin=float(bar.begin - origin), end=float(bar.end - origin)) for bar in everything)
    return [bar for bar in moved if bar.end > 0 and bar.begin < stretch.span_ns and bar.end > bar.begin]


def _host(trial: Recorded) -> Iterator[Bar]:
    for row, batch in enumerate(trial.places):
        begin = trial.borders[row]
        for phase, times in trial.phases.items():
            yield Bar(MAIN, phase, batch, begin, begin + times[row])
            begin += times[row]


def _loading(trial: Recorded) -> Iterator[Bar]:
    """Batches in the lanes of those who prepared them."""
    for row, batch in enumerate(trial.places):
        spent = [float(times[row]) for times in trial.stages.values()]
        if not np.isfinite([*spent, trial.begun[row]]).all() or not sum(spent):
            continue
        lane = f"{WORKER} {trial.worker[row]:.0f}" if np.isfinite(trial.worker[row]) else OWN
        begin, scale = trial.begun[row], (trial.ended[row] - trial.begun[row]) / sum(spent)
        for stage, took in zip(trial.stages, spent, strict=True):
            yield Bar(lane, stage, batch, begin, begin + took * scale)
            begin += took * scale


def _on_device(trial: Recorded) -> Iterator[Bar]:
    if not trial.compute:
        return
    work = {name: times for name, times in trial.compute.items() if name != IDLE}
    fetched = trial.borders[:-1] + trial.phases["fetch"]
    if not work:
        for batch, idle, end in zip(trial.places, trial.compute[IDLE], fetched, strict=True):
            yield Bar(DEVICE, IDLE, batch, end - idle, end)
        return
    begins = np.cumsum(np.sum(list(trial.compute.values()), axis=0)) - np.sum(list(work.values()), axis=0)
    # On a stream of its own the next copy is issued before the step's first event.
    issued = fetched if trial.copies is None else fetched + trial.phases.get("h2d", 0.0)
    offset = float(np.max(issued - begins))
    for row, batch in enumerate(trial.places):
        begin = begins[row] + offset
        # The window begins with a device that has been waited for.
        yield Bar(DEVICE, IDLE, batch, begin - trial.compute[IDLE][row] if row else trial.borders[0], begin)
        for name, times in work.items():
            yield Bar(DEVICE, name, batch, begin, begin + times[row])
            begin += times[row]
        if trial.copies is not None:
            yield Bar(COPIES, "h2d", batch, fetched[row], fetched[row] + trial.copies[row])


def sums(trial: Recorded, stretch: Stretch) -> tuple[float, float, float | None]:
    """Sum up the whole steps of a stretch.

    Returns:
        Mean wall clock of a step in ns, the share of it that the training process spent in fetching, and the share in
        which the device had nothing to do, None without a timed device.
    """
    rows, span = slice(stretch.first, stretch.first + stretch.count), stretch.span_ns
    wall = float(trial.borders[rows.stop] - trial.borders[rows.start])
    idle = [bar for bar in bars(trial, stretch) if bar.lane == DEVICE and bar.part == IDLE]
    idled = sum(min(bar.end, span) - max(bar.begin, 0.0) for bar in idle)
    fetched = float(trial.phases["fetch"][rows].sum())
    return wall / stretch.count, fetched / wall, idled / span if trial.compute else None
