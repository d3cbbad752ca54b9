"""One trial: start-up, warm-up, window, and the row that they give."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain
from math import lcm
from typing import Any

import torch

from feedrate.schema import window as windows
from feedrate.schema.columns import STEPS_KEPT, WORKER_STAGES
from feedrate.trial import cache, distributed, loader, loop, page_cache, stages, transfer
from feedrate.trial.feed import Feed, once, open_feed, planted_read_ns, read_from
from feedrate.trial.job import Job, Reporter
from feedrate.trial.loader import Batch
from feedrate.trial.step import Training, shapes
from feedrate.trial.transfer import Ahead, Timeline, serialize

EVENT_ROOM = 4
"""CUDA events are made before the window for so many times the steps that the end of the warm-up promises."""


def run_trial(job: Job, reporter: Reporter) -> None:
    """Run a trial in this process and report: ``first_batch``, ``window_opens``, ``window_closes``, ``result``."""
    torch.manual_seed(job.seed)
    synchronize = torch.cuda.synchronize if job.device == "cuda" else nothing
    synchronize()  # makes the CUDA context, which is no part of a loader's start-up
    replicas = distributed.of(job)
    together = replicas.together(synchronize)
    plain, training = stages.assemble(job, torch.device(job.device), replicas.wrap)
    feed = open_feed(job, torch.device(job.device))
    reporter.hold(feed)
    reporter.send("first_batch", t_ns=time.perf_counter_ns() - feed.settled_ns)
    batches, compile_ns = rehearsed(training, plain, feed.batches, synchronize)
    ahead = transfer.ahead(job, plain, batches)
    row, timeline = timed(job, ahead, synchronize)
    warm = replicas.warm_up(lambda limits: loop.measure(batches, row, limits, together), warm_up_limits(job))
    if timeline:
        timeline.reset(EVENT_ROOM * int(job.window_s * 1e9) // warm.pace_ns())
    if job.device == "cuda":
        torch.cuda.reset_peak_memory_stats()  # compiling and searching for algorithms take more than training
    overflows = training.overflows if training else None
    if overflows:
        overflows.reset()
    limits = replicas.agree(window_limits(job, feed.most_steps), warm.pace_ns())
    begun = feed.epochs.begun if feed.epochs else 0
    window = loop.measure(batches, row, limits, together, opens=lambda: reporter.send("window_opens"))
    reporter.send("window_closes")
    steps = window.durations()
    columns = (
        throughput(job, warm, window)
        | _steadiness(job, window, timeline)
        | _phases(window, steps)
        | {
            "startup_ns": feed.startup_ns,
            "compile_ns": compile_ns,
            "batch_bytes": feed.batch_bytes,
            "planted_read_ns": planted_read_ns(job, ahead.held + warm.steps, window.steps),
        }
        | _data(job, feed)
        | {"epochs": feed.epochs.begun - begun if feed.epochs else None}
    )
    columns |= _workers(feed, window, steps) | _device(job, window, timeline, steps)
    columns["nonfinite_steps"] = overflows.count() if overflows else None
    kept = {f"{name}_ns": times[:STEPS_KEPT] for name, times in steps.items()}
    single = kept | _prepared(feed, window)
    reporter.send("result", row=columns, steps=single, started_ns=window.started, ended_ns=window.ended)


def rehearsed(
    training: Training | None, row: Sequence[stages.Stage], batches: Iterator[Batch], synchronize: Callable[[], None]
) -> tuple[Iterator[Batch], int | None]:
    """Have everything compiled before the warm-up."""
    if training is None or not training.rehearsals:
        return batches, None
    first = next(batches)
    begun = time.perf_counter_ns()
    training.rehearse(lambda: reduce(lambda state, stage: stage.run(state), row, first))
    synchronize()
    return chain([first], batches), time.perf_counter_ns() - begun


def nothing() -> None:
    """There is no device to wait for."""


def timed(job: Job, ahead: Ahead, synchronize: Callable[[], None]) -> tuple[list[stages.Stage], Timeline | None]:
    """Put the device's clock around the stages, as the axis ``timing`` says."""
    row = ahead.row
    if job.device != "cuda" or not row:
        return row, None
    if job.value("timing") == "serialized":
        return serialize(row, synchronize), None
    timeline = Timeline([stage.phase for stage in row])
    if ahead.streamed is None:
        return timeline.instrument(row), timeline
    # Its first stage issues the next copy before it has the compute stream wait: only the wait is the device's.
    ahead.streamed.move = timeline.beside(ahead.streamed.move)
    waits, *rest = timeline.instrument([row[0]._replace(run=ahead.streamed.wait), *row[1:]])
    ahead.streamed.wait = waits.run
    return [row[0], *rest], timeline


def warm_up_limits(job: Job) -> loop.Limits:
    """Until the prefetched stock is gone, for five steps, and for ``warmup_s``; with epochs, until one of them ends.

    Where samples may be read once only, none are spent on time.
    """
    least = windows.warm_up_steps(job.value("num_workers"), job.value("prefetch_factor"))
    return loop.Limits.of(0.0 if once(job) else job.warmup_s, least, max(1, job.value("epoch_steps")))


def window_limits(job: Job, most: int | None = None) -> loop.Limits:
    """At least ``window_s`` and ``min_steps``, in whole rounds; two epochs, if any, as its halves are compared."""
    least = max(job.min_steps, 2 * job.value("epoch_steps"))
    limits = loop.Limits.of(job.window_s, least, steps_of_a_round(job))
    return limits if most is None else replace(limits, capacity=min(limits.capacity, most))


def steps_of_a_round(job: Job) -> int:
    """Count the steps after which all stands where it stood: an epoch or a batch of every worker; sizes of images."""
    return lcm(int(job.value("epoch_steps")) or max(1, job.value("num_workers")), shapes(job))


def _data(job: Job, feed: Feed) -> dict[str, Any]:
    """Say what was read, and which share of it lay in the page cache before and after."""
    columns: dict[str, Any] = {
        "data_hash": feed.manifest.data_hash,
        "workload_version": feed.manifest.workload_version,
    }
    if feed.cached is not None:
        columns |= {
            "cached_before_pct": 100 * feed.cached,
            "cached_after_pct": 100 * page_cache.cached(read_from(job)),
            "stored_bytes": feed.manifest.bytes,
            "pack_ns": round(feed.manifest.pack_s * 1e9),
            "format_version": feed.manifest.format_version,
            **cache.columns(job),
        }
    return columns


def throughput(job: Job, warm: loop.Window, window: loop.Window) -> dict[str, Any]:
    """Count the window: steps, samples of all replicas, wall clock, samples a second; and the warm-up before it."""
    samples = window.steps * job.value("batch_size") * job.value("world_size")
    return {
        "steps": window.steps,
        "samples": samples,
        "wall_ns": window.wall_ns,
        "samples_per_s": samples * 1e9 / window.wall_ns,
        "warmup_steps": warm.steps,
        "warmup_ns": warm.wall_ns,
    }


def _steadiness(job: Job, window: loop.Window, timeline: Timeline | None) -> dict[str, Any]:
    """Compare the window's halves, by the device's clock where it has one."""
    half = (timeline or window).half_ratio(steps_of_a_round(job))
    return {"half_ratio": half, "steady": half is not None and windows.STEADY < half < 1 / windows.STEADY}


def _phases(window: loop.Window, steps: dict[str, list[int]]) -> dict[str, int]:
    sums = {f"host_{phase}_ns": sum(times) for phase, times in steps.items()}
    sums["host_other_ns"] += window.drained
    return sums


def _workers(feed: Feed, window: loop.Window, steps: dict[str, list[int]]) -> dict[str, int]:
    """Decode the workers' stamps: sums for the trial, single times into ``steps``."""
    if feed.startup_ns is None:
        return {}
    unpacked: Sequence[tuple[int, ...]] = [loader.STAMPS.unpack(tag) for tag in window.tags[: window.steps]]
    steps |= {f"worker_{stage}": [times[i] for times in unpacked] for i, stage in enumerate(WORKER_STAGES)}
    return {f"worker_{stage}_ns": sum(steps[f"worker_{stage}"]) for stage in WORKER_STAGES}


def _prepared(feed: Feed, window: loop.Window) -> dict[str, Sequence[int | None]]:
    """Say who prepared the batches of the first steps, and when, from the beginning of the window's first step."""
    if feed.startup_ns is None:
        return {}
    unpacked = [loader.STAMPS.unpack(tag)[-3:] for tag in window.tags[: min(window.steps, STEPS_KEPT)]]
    origin = window.stamps[0]
    return {
        "worker": [None if worker == loader.NOBODY else worker for _, _, worker in unpacked],
        "worker_begun_ns": [begun - origin for begun, _, _ in unpacked],
        "worker_ended_ns": [ended - origin for _, ended, _ in unpacked],
    }


def _device(
    job: Job, window: loop.Window, timeline: Timeline | None, steps: dict[str, list[int]]
) -> dict[str, int | None]:
    """Read the events: sums for the trial, single times into ``steps``; and the device's memory."""
    columns: dict[str, int | None] = {}
    if timeline:
        spans = timeline.spans()
        steps |= {f"device_{name}": times for name, times in spans.items()}
        columns = {f"device_{name}_ns": sum(times) for name, times in spans.items()}
        if (exposed := timeline.exposed()) is not None:
            steps["device_h2d_exposed"] = exposed
            columns["device_h2d_exposed_ns"] = sum(exposed)
    if job.device == "cuda":
        columns |= {"host_drain_ns": window.drained, **_memory()}
    return columns


def _memory() -> dict[str, int | None]:
    """Memory of the device after the window, and page-locked memory of the host where PyTorch accounts for it."""
    free, total = torch.cuda.mem_get_info()
    pinned = torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else {}
    return {
        "gpu_mem_peak_bytes": torch.cuda.max_memory_allocated(),
        "gpu_mem_reserved_bytes": torch.cuda.max_memory_reserved(),
        "gpu_mem_used_bytes": total - free,
        "pinned_bytes": pinned.get("allocated_bytes.current"),
    }
