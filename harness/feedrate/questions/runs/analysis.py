"""Recorded steps → bars on one clock: what training process, workers and device did in the same stretch of time.

All begins and ends are nanoseconds since the stretch began, on the host's monotonic clock, which all processes share.
What is a stamp and what is laid out:

- The training process' phases share their borders' stamps: each begins where the one before ended.
- A worker's batch begins and ends with stamps of its own. Within it stages alternate sample by sample; only their sums
  are known, so they are drawn one after the other, in proportion. What no stage accounts for is spread over them.
- A batch that the training process prepares by itself has such stamps too. In runs older than these stamps it is laid
  out from the beginning of its fetch; a worker's cannot be placed there, and is left out.
- The device's spans follow one another between events on one stream, so that adding up gives their distances. Where its
  clock stands against the host's is not recorded: it is put as early as possible without any step's first span
  beginning before the host had its batch, and had issued the copy of the next where copies have a stream of their own.
  Where the device waits for the host at least once, that is exact.
- Copies on a stream of their own have a length; they are put where the host ordered them.

What the probes saw over a run, thinned to what a picture can show.

The probes look ten times a second, a run lasts minutes to hours. Its time is cut into equal bins; of every quantity a
bin keeps the mean, the least and the most of its samples, so that no peak is lost. The same samples always give the
same bins. What is seen is described, not estimated: neighbouring samples depend on one another, and a mean of theirs
has no interval.

Samples are taken while a trial runs; between trials, while a fresh process gets ready, nobody looks, and bins without a
sample stay empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.schema.columns import PHASES, WORKER_STAGES

Floats = npt.NDArray[np.float64]

STEPS_SHOWN = 6
"""Of the slowest trial of a comparison."""
MOST_STEPS = 14
"""Of the fastest, so that its bars can be told apart; the slowest shows fewer then, but at least ``LEAST_STEPS``."""
LEAST_STEPS = 2
MAIN, OWN, WORKER, DEVICE, COPIES = "main process", "its loading", "worker", "device", "copy stream"
"""Lanes; a worker's has its number behind the word."""
IDLE = "idle"
"""The part of a device's lane in which nothing was asked of it."""
_COMPUTE = ("h2d", "forward", "backward", "optimizer")


class Bar(NamedTuple):
    """One stretch of work of one lane."""

    lane: str
    """``MAIN``, ``OWN``, ``WORKER`` and a number, ``DEVICE`` or ``COPIES``."""
    part: str
    """A phase, a stage of ``records.WORKER_STAGES``, or ``IDLE``."""
    batch: int
    """Place in the window of the step that fetched it, for the lanes of loading; else of the step."""
    begin: float
    """ns since the stretch began; negative: before it."""
    end: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded steps of one trial."""

    places: list[int]
    """Of the steps in the window."""
    phases: dict[str, Floats]
    """Host phases in the order in which a step runs them, ns of each step; those that are null are not there."""
    borders: Floats
    """When each step began, and when the last one ended, ns since the first began; steps + 1."""
    stages: dict[str, Floats]
    """Stages of loading, ns of each step's batch; NaN where nothing was stamped."""
    worker: Floats
    """Which worker prepared each step's batch; NaN: the training process, or it is not known."""
    begun: Floats
    """When that began, ns; NaN in older runs."""
    ended: Floats
    compute: dict[str, Floats]
    """Spans on the device's compute stream, ``IDLE`` first, ns of each step; empty where they were not timed."""
    copies: Floats | None
    """Copies on a stream of their own, ns of each step."""
    workers: int
    """How many workers the cell has."""

    @property
    def step_ns(self) -> float:
        """Mean wall clock of a step."""
        return float(self.borders[-1]) / len(self.places)

    @property
    def stamped(self) -> bool:
        """Whether it is known when batches were prepared."""
        return bool(np.isfinite(self.begun).any())


def recorded(frame: pd.DataFrame) -> Recorded:
    """Read the steps of one trial."""
    row = frame.iloc[0]
    first = None if pd.isna(row["prefetcher"]) else str(row["prefetcher"])
    given = {phase: _floats(frame, f"{phase}_ns") for phase in _ordered(first)}
    phases = {phase: times for phase, times in given.items() if np.isfinite(times).all()}
    wall = np.sum(list(phases.values()), axis=0)
    compute, copies = _device(frame, first)
    return Recorded(
        places=[int(place) for place in frame["place"]],
        phases=phases,
        borders=np.concatenate([[0.0], np.cumsum(wall)]),
        stages={stage: _floats(frame, f"worker_{stage}_ns") for stage in WORKER_STAGES},
        worker=_floats(frame, "worker"),
        begun=_floats(frame, "worker_begun_ns"),
        ended=_floats(frame, "worker_ended_ns"),
        compute=compute,
        copies=copies,
        workers=0 if pd.isna(row["num_workers"]) else int(row["num_workers"]),
    )


def _floats(frame: pd.DataFrame, column: str) -> Floats:
    return np.asarray(frame[column].astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def _ordered(prefetcher: str | None) -> tuple[str, ...]:
    """A batch that is moved ahead on the compute stream is moved behind both passes of the step before."""
    return PHASES if prefetcher != "next_batch" else ("fetch", "forward", "backward", "h2d", "optimizer", "other")


def _device(frame: pd.DataFrame, prefetcher: str | None) -> tuple[dict[str, Floats], Floats | None]:
    """Read the device's spans in the order of its stream; with copies beside it, what the stream waited for them."""
    given = {name: _floats(frame, f"device_{name}_ns") for name in (IDLE, *_COMPUTE, "h2d_exposed")}
    exposed, copies = given.pop("h2d_exposed"), None
    if prefetcher == "stream":
        copies, given["h2d"] = given["h2d"], exposed
    order = (IDLE, *(phase for phase in _ordered(prefetcher) if phase in _COMPUTE))
    spans = {name: given[name] for name in order if np.isfinite(given[name]).all()}
    # Old runs did not record what a copy on another stream was waited for: without it nothing adds up.
    known = IDLE in spans and (copies is None or "h2d" in spans)
    return (spans if known else {}), (copies if known else None)


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
    ``MOST_STEPS``.
    """
    slowest, fastest = max(trial.step_ns for trial in trials), min(trial.step_ns for trial in trials)
    count = max(LEAST_STEPS, min(STEPS_SHOWN, int(MOST_STEPS * fastest / slowest)))
    slow = next(trial for trial in trials if trial.step_ns == slowest)
    count = min(count, len(slow.places))
    first = _typical(slow, count)
    span = float(slow.borders[first + count] - slow.borders[first])
    return [_stretch(trial, span) for trial in trials]


def _stretch(trial: Recorded, span: float) -> Stretch:
    wanted = max(1, min(len(trial.places), round(span / trial.step_ns)))
    first = _typical(trial, wanted)
    whole = int(np.searchsorted(trial.borders, trial.borders[first] + span * (1 + 1e-9), side="right")) - 1 - first
    return Stretch(first, max(1, whole), span)


def _typical(trial: Recorded, count: int) -> int:
    """Row of the first of so many steps whose wall clock and wait for data are nearest to the means; the earliest.

    Steps so late that a worker's last recorded batch is behind it are passed over where others are left: what it
    prepared then was fetched after the last recorded step.
    """
    starts = np.arange(len(trial.places) - count + 1)
    waits = np.concatenate([[0.0], np.cumsum(trial.phases["fetch"])])
    far = np.zeros(len(starts))
    for sums in (trial.borders, waits):
        far += np.abs(sums[starts + count] - sums[starts] - count * sums[-1] / len(trial.places))
    seen = trial.borders[starts + count] <= _known_until(trial)
    return int(np.argmin(np.where(seen, far, np.inf) if seen.any() else far))


def _known_until(trial: Recorded) -> float:
    """When the first of the workers ended its last recorded batch; infinite where none has stamps."""
    ends = [trial.ended[trial.worker == number].max() for number in np.unique(trial.worker[np.isfinite(trial.worker)])]
    return float(min(ends, default=np.inf))


def bars(trial: Recorded, stretch: Stretch) -> list[Bar]:
    """Lay out what is known of a stretch."""
    origin = trial.borders[stretch.first]
    everything = (*_host(trial), *_loading(trial), *_on_device(trial))
    moved = (bar._replace(begin=float(bar.begin - origin), end=float(bar.end - origin)) for bar in everything)
    return [bar for bar in moved if bar.end > 0 and bar.begin < stretch.span_ns and bar.end > bar.begin]


def _host(trial: Recorded) -> Iterator[Bar]:
    for row, place in enumerate(trial.places):
        begin = trial.borders[row]
        for phase, times in trial.phases.items():
            yield Bar(MAIN, phase, place, begin, begin + times[row])
            begin += times[row]


def _loading(trial: Recorded) -> Iterator[Bar]:
    """Batches in the lanes of those who prepared them."""
    for row, place in enumerate(trial.places):
        spent = [float(times[row]) for times in trial.stages.values()]
        if not np.isfinite(spent).all() or not sum(spent):
            continue
        if np.isfinite(trial.begun[row]):
            lane = f"{WORKER} {trial.worker[row]:.0f}" if np.isfinite(trial.worker[row]) else OWN
            begin, scale = trial.begun[row], (trial.ended[row] - trial.begun[row]) / sum(spent)
        elif not trial.workers:
            lane, begin = OWN, trial.borders[row]
            scale = min(1.0, trial.phases["fetch"][row] / sum(spent))
        else:
            continue
        for stage, took in zip(trial.stages, spent, strict=True):
            yield Bar(lane, stage, place, begin, begin + took * scale)
            begin += took * scale


def _on_device(trial: Recorded) -> Iterator[Bar]:
    if not trial.compute:
        return
    ends = np.cumsum(np.sum(list(trial.compute.values()), axis=0))
    begins = ends - np.sum([times for name, times in trial.compute.items() if name != IDLE], axis=0)
    fetched = trial.borders[:-1] + trial.phases["fetch"]
    # On a stream of its own the next copy is issued before the step's first event.
    asked = fetched if trial.copies is None else fetched + trial.phases.get("h2d", 0.0)
    offset = float(np.max(asked - begins))
    for row, place in enumerate(trial.places):
        begin = begins[row] + offset
        # The window begins with a device that has been waited for.
        yield Bar(DEVICE, IDLE, place, begin - trial.compute[IDLE][row] if row else trial.borders[0], begin)
        for name, times in trial.compute.items():
            if name != IDLE:
                yield Bar(DEVICE, name, place, begin, begin + times[row])
                begin += times[row]
    if trial.copies is not None:
        for row, place in enumerate(trial.places):
            yield Bar(COPIES, "h2d", place, fetched[row], fetched[row] + trial.copies[row])


class Account(NamedTuple):
    """What the whole steps of a stretch add up to."""

    step_ns: float
    """Mean wall clock of a step."""
    waiting: float
    """Share of it that the training process spent in fetching."""
    lead_ns: float | None
    """Median over its batches, from being ready to being asked for; negative: asked for first. None: not known."""
    hidden: float | None
    """Share of the workers' work in the stretch while the training process did not fetch; None: not known."""
    idle: float | None
    """Share in which the device had nothing to do; None without a timed device."""


def account(trial: Recorded, stretch: Stretch) -> Account:
    """Add up a stretch."""
    rows = slice(stretch.first, stretch.first + stretch.count)
    borders, fetch = trial.borders, trial.phases["fetch"]
    wall = float(borders[stretch.first + stretch.count] - borders[stretch.first])
    leads = (borders[:-1] - trial.ended)[rows]
    shown = bars(trial, stretch)
    idle = [bar for bar in shown if bar.lane == DEVICE and bar.part == IDLE]
    return Account(
        step_ns=wall / stretch.count,
        waiting=float(fetch[rows].sum()) / wall,
        lead_ns=float(np.nanmedian(leads)) if trial.workers and np.isfinite(leads).any() else None,
        hidden=_hidden(shown, stretch.span_ns),
        idle=_within(idle, stretch.span_ns) / stretch.span_ns if trial.compute else None,
    )


def _hidden(shown: Sequence[Bar], span: float) -> float | None:
    work = [bar for bar in shown if bar.lane.startswith(WORKER)]
    waits = [bar for bar in shown if bar.lane == MAIN and bar.part == "fetch"]
    total = _within(work, span)
    if not total:
        return None
    seen = sum(max(0.0, min(a.end, b.end, span) - max(a.begin, b.begin, 0.0)) for a in work for b in waits)
    return 1 - seen / total


def _within(shown: Sequence[Bar], span: float) -> float:
    return sum(min(bar.end, span) - max(bar.begin, 0.0) for bar in shown)


BINS = 120
"""Points of a line; a wide picture gives each of them five pixels."""
LEAST_BIN_S = 0.5
"""In which five samples lie."""
GIB = 2**30
PER_TRIAL = ("block", "position", "role", "outcome", "flags", "cached_before_pct", "cached_after_pct")
DIRECT = {
    "load": ("load_1m", 1.0),
    "steal": ("steal_pct", 1.0),
    "memory": ("mem_available_bytes", 1.0 / GIB),
    "gpu_util": ("gpu_util_pct", 1.0),
    "gpu_power": ("gpu_power_w", 1.0),
    "gpu_memory": ("gpu_mem_bytes", 1.0 / GIB),
}
"""Quantity to its column of ``records.TELEMETRY`` and what that is multiplied by."""
CPU = ("main", "workers", "others")
"""Who uses the cores: the training process, its workers, everything else; in cores."""
QUANTITIES = (*CPU, *DIRECT)
_NS = 1e9


def in_order(samples: pd.DataFrame) -> pd.DataFrame:
    """Put samples on one clock that never goes back, in seconds.

    A run that was resumed counts its time on from the trials that it had, without the pauses between them: its first
    samples can then lie before the last of the run that was interrupted, and are moved behind them.
    """
    found = samples.assign(t_s=samples["t_ns"].to_numpy(dtype=np.float64) / _NS)
    ends = found.groupby(["block", "position", "trial_id"], sort=True)["t_s"].agg(["min", "max"])
    moved = _moved(ends).droplevel(["block", "position"])
    found["t_s"] += found["trial_id"].map(moved).astype("float64")
    return found.assign(t_s=found["t_s"] - found["t_s"].min()).sort_values("t_s", kind="stable").reset_index(drop=True)


def _moved(ends: pd.DataFrame) -> pd.Series:
    """By how much each trial is moved, so that none begins before the one before it has ended."""
    shift, last, found = 0.0, -np.inf, []
    for low, high in zip(ends["min"], ends["max"], strict=True):
        shift += max(0.0, last - (low + shift))
        last = high + shift
        found.append(shift)
    return pd.Series(found, ends.index, dtype="float64")


def quantities(samples: pd.DataFrame, cores: float | None = None) -> pd.DataFrame:
    """Turn samples into the quantities that are shown."""
    main, workers, every = (
        samples[f"{name}_pct"].astype("float64") / 100 for name in ("main_cpu", "workers_cpu", "cpu_util")
    )
    rest = every * (cores if cores else np.nan) - main.fillna(0.0) - workers.fillna(0.0)
    columns = {"main": main, "workers": workers, "others": rest.clip(lower=0.0)}
    columns |= {name: samples[column].astype("float64") * scale for name, (column, scale) in DIRECT.items()}
    return pd.DataFrame(columns, index=samples.index)


def binned(samples: pd.DataFrame, cores: float | None = None, bins: int = BINS) -> pd.DataFrame:
    """Cut a run's time into equal bins and sum up each."""
    whole = float(samples["t_s"].max()) if len(samples) else 0.0
    count = max(1, min(bins, int(whole / LEAST_BIN_S)))
    width = whole / count if whole else 1.0
    place = np.minimum((samples["t_s"].to_numpy(dtype=np.float64) / width).astype(np.int64), count - 1)
    groups = quantities(samples, cores).groupby(place)
    every = pd.RangeIndex(count)
    parts = [
        groups.mean(),
        groups.min().add_suffix("_least"),
        groups.max().add_suffix("_most"),
        groups.size().rename("n"),
    ]
    found = pd.concat(parts, axis=1).reindex(every)
    found["n"] = found["n"].fillna(0).astype("int64")
    return found.assign(from_s=width * every.to_numpy(), to_s=width * (every.to_numpy() + 1))


def trials(samples: pd.DataFrame) -> pd.DataFrame:
    """Say when each trial ran, as far as the probes saw it."""
    groups = samples.groupby("trial_id", sort=False)
    ends = groups["t_s"].agg(["min", "max"]).set_axis(["from_s", "to_s"], axis=1)
    return ends.join(groups[list(PER_TRIAL)].first()).sort_values("from_s", kind="stable").reset_index()


def blocks(ran: pd.DataFrame) -> pd.DataFrame:
    """Say when each block ran: ``block``, ``from_s``, ``to_s``; of what :func:`trials` gives."""
    groups = ran.groupby("block")
    return pd.DataFrame({"from_s": groups["from_s"].min(), "to_s": groups["to_s"].max()}).reset_index()


def means(samples: pd.DataFrame, cores: float | None = None) -> Mapping[str, float]:
    """Mean of every quantity over all samples; NaN where none was seen."""
    return {str(name): float(value) for name, value in quantities(samples, cores).mean().items()}
