"""What feedrate says of a training script when it ends: ten lines for a person, one object for a machine."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from feedrate.analysis.estimate import Estimate
from feedrate.attach import loop, profiler
from feedrate.attach.loop import FED, Cause, Pacing, Prediction, Predictions
from feedrate.attach.profiler import HotLine, Stack
from feedrate.attach.records import Loader, Process, loaders
from feedrate.schema.words import number, per_cent, percent, plural, times

WORTH = 1.05
"""A prediction below so many times the present pace is no advice."""
ABOUT = 0.97
"""Predictions at least so many times the best one are as good."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was seen of a script."""

    command: str
    status: str
    """How it ended, in words."""
    took_s: float
    loader: Loader | None = None
    """The loader of the training loop, of replicas the one that is waited for most; None where there was none."""
    ranks: tuple[tuple[int, Pacing], ...] = ()
    """Of each process that trains on such a loader: its rank, and its pace; one where nothing is replicated."""
    pacing: Pacing | None = None
    cause: Cause | None = None
    lines: tuple[HotLine, ...] = ()
    """The user's lines that cost most, shares of the time in which batches were prepared."""
    predictions: Predictions | None = None
    headspace: Mapping[str, float] = field(default_factory=dict)
    """Steps a second of the step without its loader (``compute``) and of the loader without its step (``load``)."""
    machine: Mapping[str, float] = field(default_factory=dict)
    """What the machine was used, as ``usage`` says it."""
    notes: Sequence[str] = ()


def make(ended: Report, processes: Sequence[Process], stacks: Sequence[Stack], cores: float) -> Report:
    """Add what hook and profiler saw to a report on how a script ended."""
    found = loaders(processes)
    loader, pace, ranks = _training(found)
    hot, own = profiler.preparing(stacks), cores / max(1, len(ranks))  # replicas share the cores
    return dataclasses.replace(
        ended,
        loader=loader,
        ranks=ranks,
        pacing=pace,
        cause=loop.cause(loader, pace, own) if loader and pace else None,
        lines=tuple(profiler.hottest(hot)),
        predictions=loop.predict(loader, pace, own) if loader and pace else None,
        headspace={name: loop.rate(times) for name, times in loop.alone(loader, processes).items()} if loader else {},
    )


def _training(found: Sequence[Loader]) -> tuple[Loader | None, Pacing | None, tuple[tuple[int, Pacing], ...]]:
    """The loader to speak of: the one that training took most time on; of replicas that which was waited for most."""
    first = next((each for each in found if each.trains), found[0] if found else None)
    if first is None:
        return None, None, ()
    alike = [
        each
        for each in found
        if each.trains == first.trains and each.settings["made"][:1] == first.settings["made"][:1]
    ]
    by_rank = {each.settings["rank"]: each for each in reversed(alike)}
    paced = {rank: pace for rank, each in sorted(by_rank.items()) if (pace := loop.pacing(each))}
    if not paced:
        return first, None, ()
    slowest = max(paced, key=lambda rank: paced[rank].wait_share.value)
    return by_rank[slowest], paced[slowest], tuple(paced.items())


USED = {"main_cpu_pct": "training process", "workers_cpu_pct": "workers", "cpu_util_pct": "all cores"}
"""Columns of telemetry and their words; of a process 100 % is one core."""


def usage(samples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean of what the probes saw of processor and GPU, by column of telemetry; without what they cannot see."""
    found = {
        name: [s[name] for s in samples if s.get(name) is not None] for name in (*USED, "gpu_util_pct", "gpu_mem_bytes")
    }
    return {name: fmean(values) for name, values in found.items() if values}


def usage_line(means: Mapping[str, float]) -> str:
    """Say what the machine was used."""
    said = ["CPU: " + ", ".join(f"{words} {per_cent(means[name], 0)}" for name, words in USED.items() if name in means)]
    if "gpu_util_pct" in means:
        said.append(f"GPU: {per_cent(means['gpu_util_pct'], 0)}")
    if "gpu_mem_bytes" in means:
        said.append(f"{means['gpu_mem_bytes'] / 2**30:.1f} GiB of its memory")
    return "; ".join(said)


ALONE = {"compute": "the step", "load": "the loader"}
CAUSES = {
    "step": "the step itself: data lies ready when it is asked for",
    "no workers": "loading in the training process, as num_workers is 0: preparing a batch (computing "
    "{computing} of the time, waiting {waiting}) and the step take turns",
    "cores": "too few cores: the script uses {used} of their time, and workers stand in line {queued} of theirs",
    "reading": "reading: workers wait for storage or network {waiting} of their time, and compute {computing}",
    "preparing": "preparing samples: workers compute {computing} of their time",
    "collating": "collating: workers put samples together to batches {collating} of their time",
    "handing over": "handing batches over: they lie ready, and the training process needs long to take them",
    "slow batches": "slow batches: workers prepare {preparing} of their time only, but batches come in order and wait "
    "for the slowest",
    "loader": "the iterator that gives batches; what it does is not seen, as it is no DataLoader",
}
ADVICE = {
    "step": "a faster loader gives nothing: make the step faster (mixed precision, torch.compile, a larger batch)",
    "no workers": "make the first of the lines above cheaper, or store what it gives",
    "cores": "use more cores, or less work a sample: store decoded pixels, decode smaller, transform on the device",
    "reading": "read with fewer requests (shards, LMDB), or from faster storage",
    "preparing": "make the first of the lines above cheaper, or store what it gives",
    "collating": "give batches as arrays (__getitems__, a collate_fn of your own), and keep samples small (uint8)",
    "handing over": "make batches smaller in bytes: uint8 rather than float32, normalised on the device",
    "slow batches": "raise prefetch_factor, so that more batches lie ready when a slow one comes",
    "loader": "time its parts by itself",
}
SMALLEST = 0.01
"""A line of code with less of the preparing is not worth a line."""


def text(report: Report) -> Iterator[tuple[str, str]]:
    """Say it in about ten lines: what each is about, and the line."""
    yield "", f"{report.command} {report.status} after {report.took_s:.0f} s"
    loader, pace = report.loader, report.pacing
    if loader is None:
        yield "loader", "no DataLoader gave a batch; feedrate.watch(iterable) times other iterables"
    elif pace is None:
        yield "loader", f"{_made(loader)}: {plural(len(loader.steps), 'step')}; expected 10 or more to measure them"
    else:
        yield from _measured(report, loader, pace)
    for note in report.notes:
        yield "note", note


def _measured(report: Report, loader: Loader, pace: Pacing) -> Iterator[tuple[str, str]]:
    speed = f"{pace.steps_per_s.text(' steps/s')} over {plural(pace.steps, 'step')}; in brackets 95 % intervals"
    if size := loader.settings.get("batch_size"):
        speed += f"; {number(pace.steps_per_s.value * size)} samples/s"
    yield "pace", speed
    if len(report.ranks) > 1:
        waiting = [each.wait_share.value for _, each in report.ranks]
        spread = f"wait for data {percent(min(waiting))} to {percent(max(waiting))} of the time"
        yield (
            "ranks",
            f"{len(report.ranks)} processes, which {spread}; what follows is of rank {loader.settings['rank']}",
        )
    yield "data", _waits(pace)
    if report.headspace:
        rates = ", ".join(f"{ALONE[mode]} {number(rate)} steps/s" for mode, rate in report.headspace.items())
        yield "alone", f"{rates}; the script's weights are spoiled"
    if cause := report.cause:
        yield (
            "held back by",
            CAUSES[cause.name].format(**{name: percent(share) for name, share in cause.numbers.items()}),
        )
    for line in report.lines:
        if line.share >= SMALLEST:
            share = f"{percent(line.share * pace.wait_share.value)} of the time, {percent(line.share)} of preparing"
            yield "line", f"{share}:  {_short(line.file)}:{line.line}  {line.code}"
    if report.machine:
        yield "machine", usage_line(report.machine)
    yield "loader", f"{_made(loader)}  {_settings(loader)}"
    best = _best(report, pace)
    if report.predictions:
        yield "by the model", _predicted(report.predictions, pace, best)
    if cause:
        advice = ADVICE[cause.name]
        more = (
            f"num_workers={best.num_workers} ({times(best.steps_per_s.value / pace.steps_per_s.value)})" if best else ""
        )
        yield "next", f"{more}; then {advice}" if more else advice


def _waits(pace: Pacing) -> str:
    share = pace.wait_share.value
    said = f"waits for data {pace.wait_share.text()} of the time"
    if pace.startup_share > 0.005:
        said += f", {percent(pace.startup_share)} while iterators start"
    if pace.starved_share is not None:
        said += f"; the device has nothing to do {pace.starved_share.text()}"
        share = pace.starved_share.value
    return f"{said}; without that at most {times(1 / (1 - share))} as fast" if FED < share < 1 else said


def _best(report: Report, pace: Pacing) -> Prediction | None:
    """The fewest workers of those that the model finds as good as any; None where these are no better than now."""
    if not report.predictions or not report.predictions.others:
        return None
    most = max(each.steps_per_s.value for each in report.predictions.others)
    near = [each for each in report.predictions.others if each.steps_per_s.value >= ABOUT * most]
    best = min(near, key=lambda each: each.num_workers)
    return best if best.steps_per_s.low > WORTH * pace.steps_per_s.value else None


def _predicted(predictions: Predictions, pace: Pacing, best: Prediction | None) -> str:
    """What the numbers of workers around the best, or around the present one, would give."""
    others = sorted(predictions.others, key=lambda each: each.num_workers)
    middle = best.num_workers if best else predictions.num_workers
    below, rest = ([each for each in others if (each.num_workers < middle) is less] for less in (True, False))
    parts = [f"num_workers={each.num_workers} {each.steps_per_s.text()}" for each in (*below[-1:], *rest[:2])]
    basis = f"{number(predictions.present)} for the present setting, which ran at {number(pace.steps_per_s.value)}"
    return f"{', '.join(parts)} steps/s, in brackets the model's range; it is fitted to this run, and gives {basis}"


def _settings(loader: Loader) -> str:
    names = ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "start_method")
    known = ((name, loader.settings.get(name)) for name in names)
    return " ".join(f"{name}={value}" for name, value in known if value is not None) or str(
        loader.settings.get("dataset")
    )


def _made(loader: Loader) -> str:
    """Where the user's own code made it: the innermost line outside packages, else the innermost."""
    return place(loader.settings.get("made"))


def place(callers: Sequence[Sequence[Any]] | None) -> str:
    """Name the innermost of some callers that is the user's own code, else the innermost, as file:line."""
    places = callers or [["?", 0, ""]]
    own = [each for each in places if not profiler.of_library(each[0])]
    file, line, _ = (own or places)[0]
    return f"{_short(file)}:{line}"


def _short(file: str) -> str:
    """A path as a person types it here."""
    near = os.path.relpath(file)
    return re.sub(r".*/(site|dist)-packages/", "", file) if near.startswith("..") else near


def as_object(report: Report) -> dict[str, Any]:
    """The same for a machine: numbers as they are, NaN as null."""

    def plain(value: Any) -> Any:
        if isinstance(value, Loader):
            return {
                **{key: part for key, part in value.settings.items() if key not in ("what", "t_ns")},
                "steps": len(value.steps),
            }
        if isinstance(value, Estimate):
            return {name: plain(part) for name, part in value.row(("value", "lo", "hi", "n")).items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {key: plain(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(part) for part in value]
        return None if isinstance(value, float) and math.isnan(value) else value

    return {**plain(report), "said": list(text(report))}
