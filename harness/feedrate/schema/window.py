"""What a window needs, known to the trial and to plan and pages, which load no torch: steps, halves, samples, cache."""

from __future__ import annotations

LEAST_WARM_UP = 5
"""Steps of a warm-up at least."""
STEADY = 0.9
"""A window is steady when the ratio of its halves' throughput lies between this and its inverse."""
COLD, WARM = 0.01, 0.99
"""Cached shares of the packed samples up to which a trial counts as cold, and from which on as warm."""
READ_LEAST = 0.8
"""Share of the bytes of its samples that a cold trial must have read from storage in its window: pages that the kernel
read ahead lie in memory, however cold the set was when the trial began."""


def needed_bytes(set_bytes: float, samples: float, n_samples: float) -> float:
    """Bytes that so many samples of a set take on disk, on average."""
    return set_bytes * samples / n_samples


def drained_after(num_workers: int, prefetch_factor: int) -> int:
    """Batches to consume before the prefetched stock is gone and the loader shows its own pace."""
    return num_workers * prefetch_factor + num_workers


def warm_up_steps(num_workers: int, prefetch_factor: int) -> int:
    """Least steps before a window: those of the warm-up, then the prefetched stock."""
    return LEAST_WARM_UP + drained_after(num_workers, prefetch_factor)


def whole(steps: int, num_workers: int) -> int:
    """Round steps up to whole bursts: a multiple of the workers."""
    burst = max(1, num_workers)
    return -(-steps // burst) * burst


def steps_once(batches: int, num_workers: int, prefetch_factor: int) -> int:
    """Steps of a window in which no sample is read twice, warm-up included, for so many whole batches in the set.

    The window ends while the loader still prepares batches: one that only hands out what it had prepared would look
    faster than it is. The steps are a multiple of the workers; 0 or less where the set is too small.
    """
    burst = max(1, num_workers)
    return (batches - warm_up_steps(num_workers, prefetch_factor) - num_workers * prefetch_factor) // burst * burst


def samples_once(batch_size: int, num_workers: int, prefetch_factor: int, min_steps: int) -> int:
    """Least samples in a set that a trial with a window of ``min_steps`` steps reads once at most."""
    steps = warm_up_steps(num_workers, prefetch_factor) + whole(min_steps, num_workers)
    return batch_size * (steps + num_workers * prefetch_factor)


def batches_once(n_samples: int, batch_size: int, num_workers: int, shards: int | None) -> int:
    """Whole batches in one pass over a set.

    Workers divide shards among them and form batches of their own, of which only those count that are sure to come
    while every worker still works; with ``shards`` None any sample can be read by any worker.
    """
    if shards is None or num_workers == 0:
        return n_samples // batch_size
    return num_workers * (shards // num_workers * (n_samples // shards) // batch_size)
