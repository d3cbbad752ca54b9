"""How long a trial takes where none ran before, from what its loader and its step are known to cost.

A loader with workers hands out bursts: every worker prepares a batch at the same time. Before a window opens the first
burst must come, the warm-up must pass, and the stock that was prefetched meanwhile must be consumed. The window ends
with a whole burst. Where batches are large and workers many, that outlasts the window by far.
"""

from __future__ import annotations

import math

from feedrate.schema import plugins, window
from feedrate.schema.axes import Cell, needs_context
from feedrate.store.manifest import Protocol

TEMPLATE_S = 4.0
"""Starting an interpreter that imports torch."""
FORK_S, WORKER_S, CUDA_S = 0.15, 0.02, 2.0
"""A trial beside its batches, each worker, a CUDA context (by estimate: no GPU was measured)."""
FILE_PIXELS = 500 * 375
"""Mean size of an image file, as ImageNet's."""
BATCH_S = 0.0006
"""Handing a batch from a worker to the training process."""
DECODED_PER_S = {"png": 45e6, "jpeg": 56e6, "files": 56e6, "gzip": 60e6, "lz4": 350e6}
"""Pixels that a core decodes in a second with Pillow; of JPEG files it crops and resizes them, too (EPYC of 2026)."""
COPIED_PER_S = 100e6
"""Pixels that a core reads, makes floating-point and collates in a second."""
TRAINED_PER_S = 0.25e6
"""Pixels that a core trains SRCNN on in a second; what other models take on a CPU the first run tells."""


def trial_s(cell: Cell, protocol: Protocol, window_s: float, device: str, cores: int) -> float:
    """Predict the wall clock of a trial, in seconds, whose window lasts ``window_s`` and whose workers share cores."""
    workers, ahead = int(cell.get("num_workers", 0)), int(cell.get("prefetch_factor", 0))
    waiting_s, computing_s = batch_s(cell)
    crowded = max(1.0, workers / cores)
    burst_s = waiting_s + computing_s * crowded
    step_s = _step_s(cell, device, cores)
    pace_s = max(step_s, burst_s / workers, BATCH_S) if workers else step_s + burst_s
    warm_up_s = max(protocol.warmup_s, window.LEAST_WARM_UP * (step_s if workers else pace_s))
    drained = window.drained_after(workers, ahead) * pace_s
    least = max(protocol.min_steps, math.ceil(window_s / pace_s) if pace_s else 0)
    open_s = max(window_s, window.whole(least, workers) * pace_s)
    return _start_s(cell, workers, device, cores) + burst_s + warm_up_s + drained + open_s


def _start_s(cell: Cell, workers: int, device: str, cores: int) -> float:
    """What comes before the first batch is asked for: processes, their imports, the device."""
    fresh = int(bool(cell.get("launch_blocking")))  # the variable is read when CUDA starts
    if cell.get("start_method", "fork") != "fork" or plugins.loader_traits(str(cell.get("loader", ""))).spawns:
        fresh += workers
    imports = TEMPLATE_S * max(1.0, fresh / cores) if fresh else 0.0
    return FORK_S + workers * WORKER_S + imports + CUDA_S * needs_context(cell, device)


def _step_s(cell: Cell, device: str, cores: int) -> float:
    """The step without its loader; on a GPU it is short beside the window."""
    if "step_ms" in cell:
        return float(cell["step_ms"]) / 1000
    if device == "cuda" or cell.get("model") != "srcnn":
        return 0.0
    return int(cell["batch_size"]) * int(cell["patch_size"]) ** 2 / (TRAINED_PER_S * cores)


def batch_s(cell: Cell) -> tuple[float, float]:
    """Predict for how long one worker waits, and for how long it computes, for one batch, in seconds."""
    if cell["mode"] not in ("train", "load") or "storage_format" not in cell:
        return 0.0, 0.0
    size = int(cell["batch_size"])
    waiting, computing = (float(cell.get(planted, 0)) / 1e6 for planted in ("read_us", "decode_us"))
    return size * waiting, size * (computing + sample_s(cell)) + float(cell.get("collate_us", 0)) / 1e6


def sample_s(cell: Cell) -> float:
    """Predict what a core computes for a sample, beside what is planted."""
    workload, storage_format = str(cell["workload"]), str(cell["storage_format"])
    if "patch_size" not in cell or plugins.on_device(str(cell.get("decoder", ""))):
        return 0.0
    ready = cell.get("cache", "none") != "none"
    if plugins.samples_of(workload) == "files":
        return 0.0 if ready else FILE_PIXELS / DECODED_PER_S["files"]
    decoded = DECODED_PER_S.get(plugins.traits(storage_format).stores, math.inf)
    return pixels(cell) * (1 / COPIED_PER_S + (0.0 if ready else 1 / decoded))


def pixels(cell: Cell) -> int:
    """Pixels of a sample of images, its target included where that is an image too."""
    task = plugins.declared("feedrate.workloads", str(cell["workload"]), "TASK")
    return (2 if task == "super-resolution" else 1) * int(cell["patch_size"]) ** 2
