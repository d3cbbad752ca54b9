"""What feedrate says of a training script when it ends: ten lines for a person, one object for a machine."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from feedrate.analysis.estimate import Estimate
from feedrate.attach import causes, facts, loop, predictions, profiler
from feedrate.attach.account import ROWS, Account, account
from feedrate.attach.blame import Blame
from feedrate.attach.causes import Cause
from feedrate.attach.facts import Fact, Outside, shared_state
from feedrate.attach.loop import Pacing
from feedrate.attach.predictions import MODELLED, Prediction, Predictions
from feedrate.attach.profiler import HotLine, Stack
from feedrate.attach.records import NEXT, Loader, Process, loaders
from feedrate.schema.words import number, per_cent, percent, plural, times


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
    exposed_share: float = math.nan
    """Of the time of replicas' steps, that in which one of them waited for data: it holds up all."""
    pacing: Pacing | None = None
    account: Account | None = None
    """Of the process that trains on the loader."""
    cause: Cause | None = None
    facts: tuple[Fact, ...] = ()
    lines: Mapping[str, Sequence[HotLine]] = field(default_factory=dict)
    """By row of the account, the user's lines that ran most; of ``waiting`` those that prepared batches."""
    bound: bool = False
    """Whether batches are better prepared in the training process: it caches them, or they are made on the device."""
    predictions: Predictions | None = None
    headspace: Mapping[str, float] = field(default_factory=dict)
    """Steps a second of the step without its loader (``compute``) and of the loader without its step (``load``)."""
    machine: Mapping[str, float] = field(default_factory=dict)
    """What the machine was used, as ``usage`` says it."""
    notes: Sequence[str] = ()

    @property
    def preparing(self) -> Sequence[HotLine]:
        """The lines that prepared batches, in workers or in the training process."""
        return next((self.lines[row] for row in MODELLED if row in self.lines), ())


def make(
    ended: Report, processes: Sequence[Process], stacks: Sequence[Stack], outside: Outside, ended_ns: int
) -> Report:
    """Add what hook and profiler saw to a report on how a script ended."""
    measured = [one for one in loaders(processes) if len(one.steps)]
    loader, paced, zipped = _training(measured)
    if loader is None:
        return ended
    process = next(one for one in processes if one.pid == loader.pid and one.of(NEXT).size)
    alone = len({one.pid for one in measured}) == 1
    accounted = account(process, ended_ns if alone else 0)
    pace = paced.get(loader.settings["rank"], (loader, None))[1]
    allowed = [line["cores"] for line in process.said if line["what"] == "process"]
    cores = min([outside.cores / max(1, len(paced)), *allowed])
    outside = replace(outside, cores=cores, allowed=min(allowed, default=0))
    by_row = Blame(process, accounted).by_row(stacks) if accounted else {}
    cause = causes.name(loader, pace, accounted, outside.cores) if pace and accounted else None
    seen = facts.evidence(loader, accounted, process, processes, outside, cause, by_row) if accounted else None
    # The model knows nothing of workers that wait for one another, nor of another loader in the same step.
    together = zipped or bool(seen and seen.shared >= shared_state.LEAST)
    bound = predictions.caches(loader) or bool(seen and seen.batch.get("on_device"))
    return replace(
        ended,
        loader=loader,
        ranks=tuple((rank, pace) for rank, (_, pace) in paced.items() if pace),
        exposed_share=loop.exposed([one for one, _ in paced.values()]),
        pacing=pace,
        account=accounted,
        cause=cause,
        facts=facts.every(seen) if seen else (),
        lines={row: profiler.hottest(of_row) for row, of_row in by_row.items()},
        bound=bound,
        predictions=predictions.predict(loader, pace, outside.cores) if pace and not (together or bound) else None,
        headspace={name: loop.rate(times) for name, times in loop.alone(loader, processes).items()},
    )


def _training(measured: Sequence[Loader]) -> tuple[Loader | None, dict[int, tuple[Loader, Pacing | None]], bool]:
    """The loader to speak of, the one that is waited for most of several; and by rank those that are like it.

    Last whether its steps take batches of another loader, too.
    """
    first = next((one for one in measured if one.trains), measured[0] if measured else None)
    if first is None:
        return None, {}, False
    zipped = [one for one in measured if one is first or one.taken_in_turns(first)]
    first = max(zipped, key=lambda one: one.waited_ns)
    alike = [one for one in measured if one.trains == first.trains and one.settings["made"] == first.settings["made"]]
    by_rank = {one.settings["rank"]: one for one in reversed(alike)}
    paced = {rank: (one, loop.pacing(one)) for rank, one in sorted(by_rank.items())}
    waits = {rank: pace.wait_share.value for rank, (_, pace) in paced.items() if pace}
    return (by_rank[max(waits, key=waits.__getitem__)] if waits else first), paced, len(zipped) > 1


OF_PROCESSES = {"main_cpu_pct": "training process", "workers_cpu_pct": "workers"}
USED = {**OF_PROCESSES, "tree_cpu_pct": "its processes", "cpu_util_pct": "all cores"}
"""Columns of telemetry and their words; of a process 100 % is one core."""


def usage(samples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean of what the probes saw of processor and GPU, by column of telemetry; without what they cannot see."""
    means = {
        name: [s[name] for s in samples if s.get(name) is not None] for name in (*USED, "gpu_util_pct", "gpu_mem_bytes")
    }
    return {name: fmean(values) for name, values in means.items() if values}


def below(launcher: Mapping[str, float]) -> dict[str, float]:
    """The same of what a launcher started, as torchrun does: probes cannot tell which of its processes train."""
    own = [launcher[name] for name in OF_PROCESSES if name in launcher]
    rest = {name: mean for name, mean in launcher.items() if name not in OF_PROCESSES}
    return ({"tree_cpu_pct": sum(own)} if own else {}) | rest


def usage_line(means: Mapping[str, float]) -> str:
    """Say what the machine was used."""
    texts = [
        "CPU: " + ", ".join(f"{words} {per_cent(means[name], 0)}" for name, words in USED.items() if name in means)
    ]
    if "gpu_util_pct" in means:
        texts.append(f"GPU: {per_cent(means['gpu_util_pct'], 0)}")
    if "gpu_mem_bytes" in means:
        texts.append(f"{means['gpu_mem_bytes'] / 2**30:.1f} GiB of its memory")
    return "; ".join(texts)


ALONE = {"compute": "the step", "load": "the loader"}
SMALLEST = 0.02
"""A row of the account with less of the time is not worth a line; nor is a line of code with less of its row."""
MOST_ROWS, LEAST = 6, 0.005
"""Rows that are said, and the least share that the others must have together to be."""


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
    if report.account:
        shares = {name: report.account.share(name) for name in report.account.rows}
        yield from (("time", line) for line in row_lines(shares, report.lines))
        yield "time", f"together {report.account.wall_ns / 1e9:.1f} s of the training process"
    yield from _paces(report, loader, pace)
    cause = report.cause
    if cause and report.account:
        yield "held back by", cause.text(report.account)
    for fact in report.facts:
        yield "fact", f"{fact.text}: {fact.remedy}"
    if report.machine:
        yield "machine", usage_line(report.machine)
    yield "loader", f"{_made(loader)}  {_settings(loader)}"
    best = _recommended(report)
    if report.predictions and cause and cause.row in MODELLED:
        yield "by the model", _predicted(report.predictions, pace, best)
    if cause:
        yield "next", _advice(report, cause, pace, best)


def _advice(report: Report, cause: Cause, pace: Pacing, best: Prediction | None) -> str:
    """What to do, which no prediction contradicts."""
    remedy = next((fact.remedy for fact in report.facts if fact.explains == cause.row), "")
    split = ""
    if report.loader and report.loader.settings.get("iterable") and loop.workers_of(report.loader) < 2:
        split = ", each with a part of the data set of its own (get_worker_info())"
    cheaper = "make the costliest line cheaper"
    if best:
        gain = times(best.steps_per_s.value / pace.steps_per_s.value)
        otherwise = cheaper if cause.row == "here" else cause.remedy
        return f"num_workers={best.num_workers} ({gain}){_without(report, best)}{split}; then {remedy or otherwise}"
    if cause.row == "here" and report.bound and not remedy:
        return cheaper
    if cause.row == "here" and report.predictions and not remedy:
        now = pace.steps_per_s.value
        others = {other.num_workers: other.steps_per_s for other in report.predictions.others}
        workers = predictions.fewest(others)
        if workers is None or others[workers].value <= predictions.WORTH * now:
            return f"leave num_workers at 0, as handing batches over would cost more: {cheaper}"
        gain = f"{others[workers].through(lambda rate: rate / now, 'ratio').text()} by the model{split}"
        return f"num_workers={workers} may be faster, {gain}: feedrate tune measures it; or {cheaper}"
    return remedy or cause.remedy + (split if cause.row == "here" else "")


def _without(report: Report, best: Prediction) -> str:
    """Which arguments must go with the workers: PyTorch refuses them without any."""
    settings = report.loader.settings if report.loader else {}
    if best.num_workers or not settings.get("num_workers"):
        return ""
    return ", without prefetch_factor" + (" and persistent_workers" if settings.get("persistent_workers") else "")


def _paces(report: Report, loader: Loader, pace: Pacing) -> Iterator[tuple[str, str]]:
    """The pace of the loop, of its replicas, and of its stages alone."""
    speed = f"{pace.steps_per_s.text(' steps/s')} over {plural(pace.steps, 'step')}; in brackets 95 % intervals"
    if size := loader.settings.get("batch_size"):
        speed += f"; {number(pace.steps_per_s.value * size * max(1, len(report.ranks)))} samples/s"
    if pace.starved_share is not None:
        speed += f"; the device has nothing to do {pace.starved_share.text()} of the time"
    yield "pace", speed
    if len(report.ranks) > 1:
        waiting = [pacing.wait_share.value for _, pacing in report.ranks]
        spread = f"each waits for data {percent(min(waiting))} to {percent(max(waiting))} of the time"
        one = f"in {percent(report.exposed_share)} one of them does; the table is of rank {loader.settings['rank']}"
        yield "ranks", f"{len(report.ranks)} processes; {spread}, {one}"
    if report.headspace:
        rates = ", ".join(f"{ALONE[mode]} {number(rate)} steps/s" for mode, rate in report.headspace.items())
        yield "alone", f"{rates}; the script's weights are spoiled"


def row_lines(shares: Mapping[str, float], lines: Mapping[str, Sequence[HotLine]]) -> Iterator[str]:
    """Say the largest rows of an account, each with its hottest line, and what all others add up to."""
    order = sorted(shares, key=lambda name: -shares[name])
    shown = [name for name in order if shares[name] >= SMALLEST][:MOST_ROWS]
    for name in shown:
        text = f"{percent(shares[name]):>6}  {ROWS[name].words}"
        hot = next((line for line in lines.get(name, ()) if line.share >= SMALLEST), None)
        where = f"{percent(hot.share)} of it  {short(hot.file)}:{hot.line}  {hot.code}" if hot else ""
        yield f"{text:<45} {where}".rstrip()
    if (left := 1 - sum(shares[name] for name in shown)) >= LEAST:
        yield f"{percent(left):>6}  all else"


def _recommended(report: Report) -> Prediction | None:
    """The number of workers to have; None where batches are not what holds the script back, or none is faster."""
    modelled = report.cause and report.cause.row in MODELLED
    if not (modelled and report.pacing and report.predictions):
        return None
    others = {prediction.num_workers: prediction for prediction in report.predictions.others}
    paces = {workers: prediction.steps_per_s for workers, prediction in others.items()}
    best = predictions.recommended(report.pacing.steps_per_s.value, paces)
    return None if best is None else others[best]


def _predicted(predictions: Predictions, pace: Pacing, best: Prediction | None) -> str:
    """What the numbers of workers around the best, or around the present one, would give."""
    others = sorted(predictions.others, key=lambda prediction: prediction.num_workers)
    middle = best.num_workers if best else predictions.num_workers
    below, rest = (
        [prediction for prediction in others if (prediction.num_workers < middle) is less] for less in (True, False)
    )
    parts = [
        f"num_workers={prediction.num_workers} {prediction.steps_per_s.text()}"
        for prediction in (*below[-1:], *rest[:2])
    ]
    ran, present = number(pace.steps_per_s.value), number(predictions.present)
    basis = f"the present setting ran at {ran}, and the model gives {present}"
    return f"{', '.join(parts)} steps/s; 9 in 10 predictions for planted scripts lie in such ranges; {basis}"


def _settings(loader: Loader) -> str:
    names = ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "start_method")
    pairs = ((name, loader.settings.get(name)) for name in names)
    return " ".join(f"{name}={value}" for name, value in pairs if value is not None) or str(
        loader.settings.get("dataset")
    )


def _made(loader: Loader) -> str:
    """Where the user's own code made it: the innermost line outside packages, else the innermost."""
    return caller_line(loader.settings.get("made"))


def caller_line(callers: Sequence[Sequence[Any]] | None) -> str:
    """Name the innermost of some callers that is the user's own code, else the innermost, as file:line."""
    places = callers or [["?", 0, ""]]
    of_script = [caller for caller in places if not profiler.of_library(caller[0])]
    file, line, _ = (of_script or places)[0]
    return f"{short(file)}:{line}"


def short(file: str) -> str:
    """A path as a person types it here."""
    near = os.path.relpath(file)
    library = r".*/((site|dist)-packages|lib(64)?/python3\.\d+)/"
    return re.sub(library, "", file) if near.startswith("..") else near


def as_object(report: Report) -> dict[str, Any]:
    """The same for a machine: numbers as they are, NaN as null."""

    def kept(value: Any) -> Any:
        """What is told of a loader, an account (whose passes may be many) and an estimate."""
        if isinstance(value, Loader):
            settings = {key: setting for key, setting in value.settings.items() if key not in ("what", "t_ns")}
            return settings | {"steps": len(value.steps)}
        if isinstance(value, Account):
            return {name: getattr(value, name) for name in ("wall_ns", "rows", "steps", "starting")}
        return value.row(("value", "lo", "hi", "n")) if isinstance(value, Estimate) else value

    def plain(value: Any) -> Any:
        value = kept(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return None if isinstance(value, float) and math.isnan(value) else value

    return {**plain(report), "said": list(text(report))}
