"""One trial: start-up, warm-up, window, and the row that they give."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from harness import window as windows
from harness.records import STEPS_KEPT, WORKER_STAGES
from harness.trial import loader, loop, page_cache, stages
from harness.trial.device import Timeline, serialize
from harness.trial.feed import Feed, once, open_feed, packed, planted_read_ns
from harness.trial.job import Job, Reporter

EVENT_ROOM = 4
"""CUDA events are made before the window for so many times the steps that the end of the warm-up promises."""


def run_trial(job: Job, reporter: Reporter) -> None:
    """Run a trial in this process and report: ``first_batch``, ``window_opens``, ``window_closes``, ``result``."""
    torch.manual_seed(job.seed)
    synchronize = torch.cuda.synchronize if job.device == "cuda" else nothing
    synchronize()  # makes the CUDA context, which is no part of a loader's start-up
    row = stages.build(job, torch.device(job.device))
    feed = open_feed(job, torch.device(job.device))
    reporter.send("first_batch", t_ns=time.perf_counter_ns() - feed.settled_ns)
    row, timeline = timed(job, row, synchronize)
    warm = loop.measure(feed.batches, row, warm_up_limits(job), synchronize)
    if timeline:
        timeline.reset(EVENT_ROOM * int(job.window_s * 1e9) // warm.pace_ns())
    limits = window_limits(job, feed.most_steps)
    window = loop.measure(feed.batches, row, limits, synchronize, opens=lambda: reporter.send("window_opens"))
    reporter.send("window_closes")
    steps = window.durations()
    columns = (
        throughput(job, warm, window)
        | _steadiness(job, window, timeline)
        | _phases(window, steps)
        | {
            "startup_ns": feed.startup_ns,
            "batch_bytes": feed.batch_bytes,
            "planted_read_ns": planted_read_ns(job, warm.steps, window.steps),
        }
        | _data(job, feed)
    )
    columns |= _workers(feed, window, steps) | _device(job, timeline, steps)
    kept = {f"{name}_ns": times[:STEPS_KEPT] for name, times in steps.items()}
    reporter.send("result", row=columns, steps=kept, started_ns=window.started, ended_ns=window.ended)


def nothing() -> None:
    """There is no device to wait for."""


def timed(
    job: Job, row: list[stages.Stage], synchronize: Callable[[], None]
) -> tuple[list[stages.Stage], Timeline | None]:
    """Put the device's clock around the stages, as the axis ``timing`` says."""
    if job.device != "cuda" or not row:
        return row, None
    if job.value("timing") == "serialized":
        return serialize(row, synchronize), None
    timeline = Timeline([stage.phase for stage in row])
    return timeline.instrument(row), timeline


def warm_up_limits(job: Job) -> loop.Limits:
    """Until the prefetched stock is gone, for five steps, and for ``warmup_s``.

    Where samples may be read once only, none are spent on time.
    """
    least = windows.warm_up_steps(job.value("num_workers"), job.value("prefetch_factor"))
    return loop.Limits.of(0.0 if once(job) else job.warmup_s, least, 1)


def window_limits(job: Job, most: int | None = None) -> loop.Limits:
    """At least ``window_s`` and ``min_steps``, in multiples of the workers.

    Args:
        job: the trial.
        most: steps at which the window ends even so.
    """
    limits = loop.Limits.of(job.window_s, job.min_steps, max(1, job.value("num_workers")))
    return limits if most is None else replace(limits, capacity=min(limits.capacity, most))


def _data(job: Job, feed: Feed) -> dict[str, Any]:
    """Say what was read, and which share of it lay in the page cache before and after."""
    columns: dict[str, Any] = {
        "data_hash": feed.manifest.data_hash,
        "workload_version": feed.manifest.workload_version,
    }
    if feed.cached is not None:
        columns |= {
            "cached_before_pct": 100 * feed.cached,
            "cached_after_pct": 100 * page_cache.cached(packed(job)),
            "stored_bytes": feed.manifest.bytes,
            "pack_ns": round(feed.manifest.pack_s * 1e9),
            "format_version": feed.manifest.format_version,
        }
    return columns


def throughput(job: Job, warm: loop.Window, window: loop.Window) -> dict[str, Any]:
    """Count the window: steps, samples, wall clock, samples a second; and the warm-up before it."""
    samples = window.steps * job.value("batch_size")
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
    half = (timeline or window).half_ratio(max(1, job.value("num_workers")))
    return {"half_ratio": half, "steady": half is not None and loop.STEADY < half < 1 / loop.STEADY}


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


def _device(job: Job, timeline: Timeline | None, steps: dict[str, list[int]]) -> dict[str, int]:
    """Read the events: sums for the trial, single times into ``steps``."""
    columns: dict[str, int] = {}
    if timeline:
        spans = timeline.spans()
        steps |= {f"device_{name}": times for name, times in spans.items()}
        columns = {f"device_{name}_ns": sum(times) for name, times in spans.items()}
    if "device_h2d_ns" in columns:
        # Copies go over the compute stream: all of a copy is waited for.
        columns["device_h2d_exposed_ns"] = columns["device_h2d_ns"]
    if job.device == "cuda":
        columns["gpu_mem_peak_bytes"] = torch.cuda.max_memory_allocated()
    return columns
