"""Planted costs: waits and computations of a known length, put around the real stages of a trial.

They come on top of what is really read, decoded, collated and copied, so that every number that a trial reports can be
held against a truth. A stage without a planted cost is handed back as it is and pays nothing.

- A **wait** sleeps and uses no CPU, as storage lets a reader wait. The kernel wakes a sleeper late, by 50 to 80 us
  unless it is asked for better (``linux.exact_timers``) and by 5 to 20 us then. What a wait was late by is taken off
  those that follow, at most half of each, so that the *mean* is as planted. More than ``LATE_NS`` is never owed: a
  process that was not run for longer has lost that time, which is a fact about the machine.
- A **computation** burns CPU time of its thread, as decoding does: where cores are shared it lasts longer.
- A **payload** is bytes that every sample carries to the device, where the model ignores them.

A read's wait belongs to its sample, as a file is small or large. All cells of a block have one seed and plant the
same. The waits of a set are equally likely slices of their distribution, dealt out by a seeded permutation: over a
whole set their mean is exact, and a stretch of it is nearly as irregular as independent draws.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from feedrate.formats import Reader, Sample
from feedrate.loaders import Collate, Fields, Transform
from feedrate.machine import linux
from feedrate.trial.job import Job

LATE_NS = 4_000_000
"""Most that waits may be behind: about a scheduler's slice, for which another process may hold the core."""
SIGMA = 1.0
"""Of the logarithm of a heavy-tailed wait: its median is 0.61 of the mean, one in a hundred takes 6.2 times the mean
and more, and that one per cent makes 9 % of the time."""
SLICES = 1024
"""Different waits in one set, at most."""


class Wait:
    """Sleeps that last as long as they should on average."""

    def __init__(self) -> None:
        self._late = 0

    def __call__(self, ns: int) -> None:
        """Sleep for so many nanoseconds, less what the waits before were late by."""
        begun = time.perf_counter_ns()
        time.sleep((ns - min(self._late, ns >> 1)) / 1e9)
        self._late = min(LATE_NS, self._late + time.perf_counter_ns() - begun - ns)


class Burn:
    """Computations that use as much CPU time as they should on average."""

    def __init__(self) -> None:
        self._late = 0

    def __call__(self, ns: int) -> None:
        """Compute for so many nanoseconds of this thread's CPU time, less what was computed too long before."""
        now = time.thread_time_ns
        until = now() + ns - self._late
        while (ended := now()) < until:
            pass
        self._late = ended - until


def waits_ns(mean_us: int, shape: str, count: int, seed: int) -> list[int]:
    """Deal out a set's waits: the steps of the shape's Lorenz curve (log-normal: Φ(Φ⁻¹(p) - σ)) are their means."""
    slices = min(count, SLICES)
    shares = np.arange(slices + 1) / slices
    curve: npt.NDArray[np.float64] = shares
    if shape == "jittered":
        curve = shares**2
    elif shape == "heavy_tailed":
        normal = NormalDist()
        inner = [normal.cdf(normal.inv_cdf(share) - SIGMA) for share in shares[1:-1].tolist()]
        curve = np.array([0.0, *inner, 1.0])
    waits: list[int] = np.rint(np.diff(curve) * slices * mean_us * 1000).astype(np.int64).tolist()
    # A stream of its own: the sampler's order has the same seed.
    order = np.random.default_rng((seed, 1)).permutation(count) % slices
    return [waits[at] for at in order.tolist()]


class _PlantedReader(Reader):
    """A reader whose reads wait, each as long as its sample's wait is, and whose decodings compute longer."""

    def __init__(self, inner: Reader, waits_ns: list[int] | None, decode_ns: int) -> None:
        super().__init__(inner.root)
        self._inner, self._waits_ns, self._decode_ns = inner, waits_ns, decode_ns
        self._wait, self._burn = Wait(), Burn()

    def read(self, index: int) -> Any:
        raw = self._inner.read(index)
        if self._waits_ns:
            self._wait(self._waits_ns[index])
        return raw

    def decode(self, raw: Any) -> Sample:
        sample = self._inner.decode(raw)
        if self._decode_ns:
            self._burn(self._decode_ns)
        return sample


def reader(job: Job, inner: Reader) -> Reader:
    """Plant what reading and decoding a sample cost; for waits, this process and its workers get exact timers."""
    decode_ns, read_us = job.value("decode_us") * 1000, job.value("read_us")
    if read_us:
        linux.exact_timers()
    waits = read_waits_ns(job, len(inner)) if read_us else None
    return _PlantedReader(inner, waits, decode_ns) if waits or decode_ns else inner


def read_waits_ns(job: Job, count: int) -> list[int]:
    """The wait of every sample of a set, in ns."""
    return waits_ns(job.value("read_us"), job.value("read_shape"), count, job.seed)


def transform(job: Job, inner: Transform) -> Transform:
    """Plant what every sample carries: a payload behind its own fields."""
    size = job.value("payload_bytes")
    return partial(_add_payload, inner, (torch.ones(size, dtype=torch.uint8),)) if size else inner


def collate(job: Job, inner: Collate) -> Collate:
    """Plant what collating a batch costs."""
    ns = job.value("collate_us") * 1000
    return partial(_collate_and_burn, inner, Burn(), ns) if ns else inner


def _add_payload(inner: Transform, payload: Fields, sample: Sample) -> Fields:
    return (*inner(sample), *payload)


def _collate_and_burn(inner: Collate, burn: Burn, ns: int, samples: list[Fields]) -> Any:
    batch = inner(samples)
    burn(ns)
    return batch
