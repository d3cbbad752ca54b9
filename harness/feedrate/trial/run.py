"""One trial: start-up, warm-up, window, and the row that they give."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from math import lcm
from typing import Any

import torch

from feedrate.loaders import NOBODY, STAMPS, Batch
from feedrate.schema import window as windows
from feedrate.schema.columns import STEPS_KEPT, WORKER_STAGES
from feedrate.trial import cache, distributed, loop, page_cache, rendezvous, stages
from feedrate.trial.feed import Feed, open_feed, planted_read_ns, window_folder
from feedrate.trial.job import Job, Reporter
from feedrate.trial.stages import Timeline
from feedrate.trial.step import REHEARSALS, Training, count_sizes


def run_trial(job: Job, reporter: Reporter) -> None:
    """Run a trial in this process and report: ``first_batch``, ``window_opens``, ``window_closes``, ``result``."""
    torch.manual_seed(job.seed)
    synchronize = synchronizer(job)
    synchronize()  # makes the CUDA context, which is no part of a loader's start-up
    barrier = distributed.barrier(synchronize)
    plain, training = stages.assemble(job, torch.device(job.device), partial(distributed.replicate, job))
    feed = open_feed(job, torch.device(job.device))
    reporter.keep(feed)
    reporter.send("first_batch", t_ns=time.perf_counter_ns() - feed.settled_ns)
    batches, rehearsed = rehearse(job, training, plain, feed.batches, synchronize)
    prefetched = stages.prefetch(job, plain, batches)
    row, timeline = stages.instrument(job, prefetched, synchronize)
    warm = distributed.warm_up(lambda limits: loop.measure(batches, row, limits, barrier), warm_up_limits(job))
    if timeline:
        timeline.reset_for(job.window_s, warm.pace_ns())
    overflows = training.overflows if training else None
    limits = distributed.agree(window_limits(job, feed.most_steps), warm.pace_ns())
    if job.meeting and not distributed.in_group():  # ranks wait for each other anyway
        rendezvous.meet(job.meeting, job.value("nodes"))
    epochs_before = feed.epochs.begun if feed.epochs else 0
    allocated_before = allocations(job)

    def open_window() -> None:
        if timeline:
            timeline.reset()
        if job.uses_cuda:
            torch.cuda.reset_peak_memory_stats()  # compiling and searching for algorithms take more than training
        if overflows:
            overflows.reset()
        reporter.send("window_opens")

    window = loop.measure(batches, row, limits, barrier, open_window, lead_in_steps(job))
    reporter.send("window_closes")
    host_columns, steps = host_times(window)
    worker_columns, who = _worker_stamps(feed, window)
    device_columns, spans = device_times(job, window, timeline)
    device_columns |= {name: count - allocated_before[name] for name, count in allocations(job).items()}
    columns = throughput(job, window) | warm_up(warm, window) | steadiness(job, window, timeline)
    columns |= host_columns | worker_columns | device_columns | rehearsed | _data(job, feed)
    columns |= {
        "startup_ns": feed.startup_ns,
        "batch_bytes": feed.batch_bytes,
        "planted_read_ns": planted_read_ns(job, prefetched.held + columns["warmup_steps"], window.steps),
        "epochs": feed.epochs.begun - epochs_before if feed.epochs else None,
        "nonfinite_steps": overflows.count() if overflows else None,
    }
    kept = {name: times[:STEPS_KEPT] for name, times in (steps | who | spans).items()}
    reporter.send("result", row=columns, steps=kept, started_ns=window.started, ended_ns=window.ended)


def synchronizer(job: Job) -> Callable[[], None]:
    """Choose how to wait for the device; on a CPU there is none to wait for."""
    return torch.accelerator.synchronize if job.uses_cuda else lambda: None


def rehearse(
    job: Job,
    training: Training | None,
    row: Sequence[stages.Stage],
    batches: Iterator[Batch],
    synchronize: Callable[[], None],
) -> tuple[Iterator[Batch], dict[str, int]]:
    """Have everything compiled, loaded and chosen before the warm-up; gives all batches again, and what it took.

    What whole steps changed is taken back: weights, statistics, moments; a loss scaler keeps its scale. On CUDA what
    was reserved meanwhile is given back: choosing algorithms takes more memory than training does.
    """
    if training is None or not training.rehearsals:
        return batches, {}
    first, before = next(batches), deepcopy(training.network.state_dict())
    took: list[int] = []
    for _ in range(training.rehearsals):
        begun = time.perf_counter_ns()
        reduce(lambda state, stage: stage.run(state), row, first)
        synchronize()
        took.append(time.perf_counter_ns() - begun)
    training.network.load_state_dict(before)
    training.optimizer.state.clear()
    training.optimizer.zero_grad()
    synchronize()
    if job.device == "cuda":
        torch.cuda.empty_cache()
    compiled = {"compile_ns": sum(took)} if job.value("fusion") in REHEARSALS else {}
    return chain([first], batches), {"first_step_ns": took[0], **compiled}


def warm_up_limits(job: Job) -> loop.Limits:
    """For five steps and, unless samples may be read once only, ``warmup_s``; with epochs, until one of them ends."""
    warmup_s = 0.0 if job.single_pass else job.warmup_s
    return loop.Limits.rounded(warmup_s, windows.LEAST_WARM_UP, max(1, job.value("epoch_steps")))


def lead_in_steps(job: Job) -> int:
    """Steps between warm-up and window that consume the prefetched stock; an epoch begins without one."""
    if job.value("epoch_steps"):
        return 0
    return windows.drained_after(job.value("num_workers"), job.value("prefetch_factor"))


def window_limits(job: Job, most: int | None = None) -> loop.Limits:
    """At least ``window_s`` and ``min_steps``, in whole rounds; two epochs, if any, as its halves are compared."""
    least = max(job.min_steps, 2 * job.value("epoch_steps"))
    limits = loop.Limits.rounded(job.window_s, least, _round_steps(job))
    return limits if most is None else replace(limits, capacity=min(limits.capacity, most))


def _round_steps(job: Job) -> int:
    """Steps after which all repeats: an epoch or a batch of every worker; all sizes of images."""
    return lcm(int(job.value("epoch_steps")) or max(1, job.value("num_workers")), count_sizes(job))


def throughput(job: Job, window: loop.Window) -> dict[str, Any]:
    """Count the window: steps, samples of all replicas, wall clock, samples a second."""
    samples = window.steps * job.value("batch_size") * job.value("world_size")
    return {
        "steps": window.steps,
        "samples": samples,
        "wall_ns": window.wall_ns,
        "samples_per_s": samples * 1e9 / window.wall_ns,
    }


def warm_up(warm: loop.Window, window: loop.Window) -> dict[str, int]:
    """Count what came before the window: the warm-up, what had to be allocated, and the stock."""
    steps = len(warm.lead_in) + warm.steps + len(window.lead_in)
    return {"warmup_steps": steps, "warmup_ns": window.started - warm.started}


def steadiness(job: Job, window: loop.Window, timeline: Timeline | None) -> dict[str, Any]:
    """Compare the window's halves, by the device's clock where it has one."""
    half = (timeline or window).half_ratio(_round_steps(job))
    return {"half_ratio": half, "steady": half is not None and windows.STEADY < half < 1 / windows.STEADY}


def host_times(window: loop.Window) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Phases by the host's clock: sums for the trial, and single steps."""
    steps = {f"{phase}_ns": times for phase, times in window.durations().items()}
    columns = {f"host_{name}": sum(times) for name, times in steps.items()}
    columns["host_other_ns"] += window.drained
    return columns, steps


def _worker_stamps(feed: Feed, window: loop.Window) -> tuple[dict[str, int], dict[str, list[int | None]]]:
    """The workers' stamps: sums for the trial; single batches, with who prepared each, and when in the window."""
    if feed.startup_ns is None:
        return {}, {}
    *stages, begun, ended, workers = zip(*map(STAMPS.unpack, window.tags[: window.steps]), strict=True)
    steps: dict[str, list[int | None]] = {
        f"worker_{name}_ns": list(times) for name, times in zip(WORKER_STAGES, stages, strict=True)
    }
    columns = {f"worker_{name}_ns": sum(times) for name, times in zip(WORKER_STAGES, stages, strict=True)}
    steps["worker"] = [None if worker == NOBODY else worker for worker in workers]
    for name, moments in (("begun", begun), ("ended", ended)):
        steps[f"worker_{name}_ns"] = [moment - window.stamps[0] for moment in moments]
    return columns, steps


def device_times(
    job: Job, window: loop.Window, timeline: Timeline | None
) -> tuple[dict[str, int | None], dict[str, list[int]]]:
    """Spans by the device's clock: sums for the trial, and single steps; and the device's memory."""
    columns: dict[str, int | None] = {}
    steps: dict[str, list[int]] = {}
    if timeline:
        steps = {f"device_{name}_ns": times for name, times in timeline.spans().items()}
        columns = {name: sum(times) for name, times in steps.items()}
    if job.uses_cuda:
        free, total = torch.cuda.mem_get_info()
        columns |= {
            "host_drain_ns": window.drained,
            "gpu_mem_peak_bytes": torch.cuda.max_memory_allocated(),
            "gpu_mem_reserved_bytes": torch.cuda.max_memory_reserved(),
            "gpu_mem_used_bytes": total - free,
            # All blocks that the allocator owns, free ones too (CachingHostAllocator.h of PyTorch 2.11 and 2.15).
            "pinned_bytes": torch.cuda.host_memory_stats().get("allocated_bytes.current"),
        }
    return columns, steps


def allocations(job: Job) -> dict[str, int]:
    """Count what PyTorch's allocators have asked the driver for so far: memory of the device, pinned memory."""
    if not job.uses_cuda:
        return {}
    counts = {
        "gpu_allocations": torch.cuda.memory_stats().get("num_device_alloc"),
        "pinned_allocations": torch.cuda.host_memory_stats().get("num_host_alloc"),
    }
    return {name: count for name, count in counts.items() if count is not None}


def _data(job: Job, feed: Feed) -> dict[str, Any]:
    """Which samples were read, and which share of them lay in the page cache before and after."""
    manifest = feed.manifest
    columns: dict[str, Any] = {"data_hash": manifest.data_hash, "workload_version": manifest.workload_version}
    if feed.cached_share is not None:
        columns |= {
            "cached_before_pct": 100 * feed.cached_share,
            "cached_after_pct": 100 * page_cache.cached(window_folder(job)),
            "stored_bytes": manifest.bytes,
            "pack_ns": round(manifest.pack_s * 1e9),
            "format_version": manifest.format_version,
            **cache.columns(job),
        }
    return columns
