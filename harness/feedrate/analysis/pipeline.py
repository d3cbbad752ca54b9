"""A model of PyTorch's DataLoader before a training step: what would other workers and other batches give?

``run`` has seen one setting of a script, ``tune`` a few. For others this model runs, batch by batch, on a clock of its
own, with what was measured. It is PyTorch's own order of events (``torch.utils.data.dataloader``,
``_MultiProcessingDataLoaderIter``):

- Batch i is prepared by worker i mod W, each worker one batch after the other.
- Batches are delivered in order: the training process waits for batch i although batch i + 1 may lie ready. One slow
  batch therefore holds all workers up once they have prepared what they may.
- Of what was not delivered, at most W × prefetch_factor batches are asked for: the index of batch i + W × p leaves when
  batch i is taken. While cores are free, with start, done and take as moments of batch i:

      start_i = max(done_(i-W), take_(i-W·p))      done_i = start_i + wait_i + compute_i
      take_i  = max(done_i, take_(i-1) + step) + receive_wait + receive_compute

- Without workers the training process prepares each batch itself: done_i = take_(i-1) + step + wait_i + compute_i.

Cores are shared as a fair scheduler shares them: computing tasks that together ask for more than the machine's cores
all slow down by the same factor; a task that waits (storage, a planted latency, an emulated step) asks for none. So the
CPU's bound, batch time ≥ CPU time of all processes a batch ÷ cores, comes out by itself, and so does what is lost above
it when workers compute at the same time by chance: waiting and computing alternate within a batch, as samples do.
Batches differ: their times are drawn from measured ones, in a seeded order, around the same mean.

It does **not** know: cores that are slower together than alone (two threads of one physical core, shared caches, clocks
that fall), a worker that hands batches over more slowly while all cores are busy, storage that is slower under more
readers, other programs, a training process that has to open batches which come out of order, pinning threads, what a
step on all cores loses when a worker takes one of them away, nor a device that the host runs ahead of: there, the step
is what the device needs.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

STEPS = 256
"""Steps that are simulated after the warm-up; rounded up to whole rounds of the workers."""
SLICES = 8
"""Into so many parts at most is a batch cut whose waiting and computing alternate sample by sample."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parameters of a machine, a loader and a step."""

    wait_ns: Floats
    """What preparing a batch waits for, using no CPU: one measured batch an element, ns."""
    compute_ns: Floats
    """What preparing the same batch computes, ns; same length."""
    receive_wait_ns: float
    """What the training process waits for while it opens a ready batch (the worker hands over descriptors), ns."""
    receive_compute_ns: float
    """What it computes meanwhile, ns."""
    step_ns: float
    """The rest of a step, from holding a batch to asking for the next, on free cores, ns."""
    step_cores: float
    """How many cores the step keeps busy: 0 for a sleep, 1 for a thread, up to all."""
    cores: float
    """Cores that all processes of the trial share."""
    slices: int = SLICES
    """How often waiting and computing alternate within a batch: its samples, ``SLICES`` at most."""


class Pace(NamedTuple):
    """What the model predicts of a window."""

    step_ns: float
    """Wall clock a step: what a batch takes from one delivery to the next, ns."""
    data_wait_ns: float
    """How much of it the training process spends in fetching, ns; what taking a ready batch costs included."""


Task = Generator[tuple[float, float] | None]
"""A process of the model: yields (ns of work, cores that it asks for; 0 for a wait), or None to sleep until woken."""


class _Machine:
    """Runs tasks on shared cores: computing tasks progress on a clock that slows down when they ask for too many."""

    def __init__(self, cores: float) -> None:
        self.now = 0.0
        self._cores = cores
        self._demand = 0.0
        """Cores that all computing tasks ask for."""
        self._worked = 0.0
        self._order = count()
        self._waiting: list[tuple[float, int, Task]] = []
        self._computing: list[tuple[float, int, float, Task]] = []

    def wake(self, task: Task) -> None:
        """Let a task go on at this moment, once whoever woke it has yielded."""
        heappush(self._waiting, (self.now, next(self._order), task))

    def run(self) -> None:
        """Move from event to event until nothing is left to happen."""
        while self._waiting or self._computing:
            rate = min(1.0, self._cores / self._demand) if self._computing else 1.0
            finished = self.now + (self._computing[0][0] - self._worked) / rate if self._computing else math.inf
            if self._waiting and self._waiting[0][0] <= finished:
                self._advance(self._waiting[0][0], rate)
                task = heappop(self._waiting)[2]
            else:
                self._advance(finished, rate)
                _, _, cores, task = heappop(self._computing)
                self._demand = self._demand - cores if self._computing else 0.0
            self._resume(task)

    def _advance(self, until: float, rate: float) -> None:
        self._worked += (until - self.now) * rate
        self.now = until

    def _resume(self, task: Task) -> None:
        work = next(task, None)
        if work is None:
            return
        duration, cores = work
        if cores > 0:
            self._demand += cores
            heappush(self._computing, (self._worked + duration, next(self._order), cores, task))
        else:
            heappush(self._waiting, (self.now + duration, next(self._order), task))


class _Simulation:
    """The processes of one trial and what they know of each other."""

    def __init__(self, pipeline: Pipeline, num_workers: int, prefetch_factor: int, batches: int, seed: int) -> None:
        self.taken: list[float] = []
        """When the training process held each batch, ns."""
        self.waited: list[float] = []
        """How long it had fetched, ns."""
        self._pipeline, self._batches = pipeline, batches
        self._ahead = num_workers * prefetch_factor
        self._prepared = batches + self._ahead
        """The workers prepare more batches than are taken: at the end they compute as much as before."""
        self._wait, self._compute = _drawn(pipeline, self._prepared, seed)
        self._ready = [False] * self._prepared
        self._machine = _Machine(pipeline.cores)
        self._idle: dict[int, Task] = {}
        """Workers that have prepared all that was asked for, by the batch that they wait for."""
        self._starved = False
        self._workers = [self._work(first, num_workers) for first in range(num_workers)]
        self._main = self._train(num_workers)

    def run(self) -> None:
        for task in (*self._workers, self._main):
            self._machine.wake(task)
        self._machine.run()

    def _prepare(self, batch: int) -> Task:
        wait, compute = self._wait[batch], self._compute[batch]
        slices = self._pipeline.slices if wait and compute else 1
        for _ in range(slices):
            yield wait / slices, 0
            yield compute / slices, 1

    def _work(self, first: int, num_workers: int) -> Task:
        for batch in range(first, self._prepared, num_workers):
            if batch >= len(self.taken) + self._ahead:
                self._idle[batch] = self._workers[first]
                yield None
            yield from self._prepare(batch)
            self._ready[batch] = True
            if self._starved and batch == len(self.taken):
                self._machine.wake(self._main)

    def _train(self, num_workers: int) -> Task:
        for batch in range(self._batches):
            began = self._machine.now
            if not num_workers:
                yield from self._prepare(batch)
            else:
                self._starved = not self._ready[batch]
                if self._starved:
                    yield None
                self._starved = False
                yield self._pipeline.receive_wait_ns, 0
                yield self._pipeline.receive_compute_ns, 1
            self.taken.append(self._machine.now)
            self.waited.append(self._machine.now - began)
            if worker := self._idle.pop(batch + self._ahead, None):
                self._machine.wake(worker)
            yield self._pipeline.step_ns, self._pipeline.step_cores


def _drawn(pipeline: Pipeline, batches: int, seed: int) -> tuple[list[float], list[float]]:
    """Times of so many batches: each measured one about equally often, in a seeded order, the mean kept."""
    generator, count = np.random.default_rng(seed), len(pipeline.wait_ns)
    order = np.concatenate([generator.permutation(count) for _ in range(-(-batches // count))])[:batches]
    return _with_mean(pipeline.wait_ns, order), _with_mean(pipeline.compute_ns, order)


def _with_mean(measured: Floats, order: npt.NDArray[np.int64]) -> list[float]:
    drawn = measured[order]
    mean = drawn.mean()
    return list((drawn * (measured.mean() / mean) if mean > 0 else drawn).tolist())


def simulate(pipeline: Pipeline, num_workers: int, prefetch_factor: int = 2, *, seed: int = 0) -> Pace:
    """Predict the pace of a training loop."""
    warm = num_workers * (prefetch_factor + 1)
    steps = -(-STEPS // max(1, num_workers)) * max(1, num_workers)
    trial = _Simulation(pipeline, num_workers, prefetch_factor, warm + steps + 1, seed)
    trial.run()
    wall = trial.taken[-1] - trial.taken[warm]
    return Pace(wall / steps, sum(trial.waited[warm + 1 :]) / steps)
