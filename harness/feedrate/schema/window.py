"""What a window needs, known to the trial and to plan and pages, which load no torch: steps, halves, samples, cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Number = TypeVar("Number", float, "NDArray[np.float64]")
LEAST_WARM_UP = 5
"""Steps of a warm-up at least."""
STEADY = 0.9
"""A window is steady when the ratio of its halves' throughput lies between this and its inverse."""
COLD, WARM = 0.01, 0.99
"""Cached shares of the packed samples up to which a trial counts as cold, and from which on as warm."""
READ_LEAST = 0.8
"""Share of the bytes of its samples that a cold trial must have read from storage in its window: pages that the kernel
read ahead lie in memory, however cold the set was when the trial began."""
UNREAD_MOST = 0.2
"""Of the samples that a cold trial in random order did not read, the share that may lie in memory after its window.
Bytes alone are no proof, as what is read around one sample counts for another. But a sample is read once at most and at
random, so that none of the window had a larger chance to lie in memory when it was read. In the order of the disk what
was read ahead comes next, and a memory limit pushes it out: neither is asked."""
COLD_PART = 3
"""A cold trial in random order reads one in so many samples of its set at most. Where what lies before a sample is in
memory, Linux takes a random read for part of a sequence and reads ahead: of 4,096 samples of 55 kB in one file, 7 to
14 % of those not read lay in memory after a third, 37 to 39 % after a half (Linux 6.18, read-ahead of 8 MiB)."""
READ_AHEAD_KIB = 128
"""How far a disk reads ahead by Linux's own default (``VM_READAHEAD_PAGES``): cold trials of the suites set it."""
FULL = 0.9
"""Share of its memory limit that a trial's group must use when a window with ``page_cache = full`` opens."""


def consumed_samples(steps: Number, batch_size: Number, num_workers: Number, prefetch_factor: Number) -> Number:
    """Count the samples that were handed out in so many steps, warm-up included, and what may be prepared then."""
    return batch_size * (steps + num_workers * prefetch_factor)


def unread_in_memory(cached_pct: Number, consumed: Number, n_samples: Number) -> Number:
    """Share of the samples that were not read which lies in memory, by the cached share of the whole set."""
    return (cached_pct / 100 * n_samples - consumed) / (n_samples - consumed)


def needed_bytes(set_bytes: Number, samples: Number, n_samples: Number) -> Number:
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


def samples_once(batch_size: int, num_workers: int, prefetch_factor: int, min_steps: int, access: str) -> int:
    """Least samples in a set that a cold trial with a window of ``min_steps`` steps reads once at most."""
    steps = warm_up_steps(num_workers, prefetch_factor) + whole(min_steps, num_workers)
    return int(consumed_samples(steps, batch_size, num_workers, prefetch_factor)) * _part(access)


def _part(access: str) -> int:
    return COLD_PART if access == "random" else 1


def batches_once(n_samples: int, batch_size: int, num_workers: int, access: str, shards: int | None) -> int:
    """Whole batches that a cold trial may read of a set: of all its samples, or of one in ``COLD_PART``.

    Workers divide shards among them and form batches of their own, of which only those count that are sure to come
    while every worker still works; with ``shards`` None any sample can be read by any worker.
    """
    if shards is None or num_workers == 0:
        return n_samples // _part(access) // batch_size
    return num_workers * (shards // num_workers * (n_samples // shards) // batch_size)
