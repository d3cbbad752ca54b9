"""Plans of training on a device, and what happens when one is followed: a simulation of events, in virtual time.

It is the truth that feedrate's loop and timeline are held against. It shares nothing with them or with the fake device:
the loader, the host and each stream are processes, which hand each other work and wait for each other.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import NamedTuple

PASSES = ("forward", "backward", "optimizer")
DEPTH = 4
"""Batches that a loader prepares ahead."""


@dataclass(frozen=True)
class Plan:
    """Planted times of a training loop, in microseconds."""

    prefetcher: str
    pinned: bool
    load: int = 1_000
    """What the loader takes for a batch."""
    copy: int = 1_000
    launch: int = 500
    """What the host takes to issue a pass."""
    kernel: int = 1_000
    """What the device takes for a pass."""
    spread: float = 0.0
    """By which share each of these times differs from step to step, at most."""
    steps: int = 40

    def times(self, what: str) -> Iterator[int]:
        """Deal out the times of one of them, in ns, the same ones whenever they are asked for."""
        mean_ns = 1000 * (self.kernel if what in PASSES else self.launch if "launch" in what else getattr(self, what))
        draw = random.Random(what)
        return (round(mean_ns * (1 + self.spread * draw.uniform(-1, 1))) for _ in count())


@dataclass(eq=False)
class Signal:
    """Something that happens once."""

    happened: bool = False
    waiting: list[Process] = field(default_factory=list)


Process = Generator["int | Signal"]
"""Waits for so many ns, or for a signal."""


class Simulation:
    """Runs processes until none is left that can go on."""

    def __init__(self) -> None:
        self.now = 0
        self._order = count()
        self._coming: list[tuple[int, int, Process]] = []

    def start(self, process: Process, after: int = 0) -> None:
        heapq.heappush(self._coming, (self.now + after, next(self._order), process))

    def happen(self, signal: Signal) -> None:
        signal.happened = True
        while signal.waiting:
            self.start(signal.waiting.pop())

    def run(self) -> None:
        while self._coming:
            self.now, _, process = heapq.heappop(self._coming)
            for wanted in process:
                if isinstance(wanted, int):
                    self.start(process, wanted)
                elif not wanted.happened:
                    wanted.waiting.append(process)
                else:
                    continue
                break


class Work(NamedTuple):
    """A piece of work on a stream: it waits for something, takes a while, and says that it is done."""

    name: str
    ns: int
    behind: Signal | None
    done: Signal


class Queue:
    """A stream: does its work in order, and keeps when each piece began and ended."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._work: deque[Work] = deque()
        self._came = Signal()
        self.done: dict[str, list[tuple[int, int]]] = {}
        simulation.start(self._process())

    def put(self, name: str, ns: int, behind: Signal | None = None) -> Signal:
        self._work.append(Work(name, ns, behind, Signal()))
        self._simulation.happen(self._came)
        return self._work[-1].done

    def _process(self) -> Process:
        while True:
            while not self._work:
                self._came = Signal()
                yield self._came
            work, begins = self._work.popleft(), self._simulation.now
            if work.behind:
                yield work.behind
            if work.ns:
                yield work.ns
            self.done.setdefault(work.name, []).append((begins, self._simulation.now))
            self._simulation.happen(work.done)


class Truth:
    """What happens when a plan is followed; every list has one entry a step."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._simulation = Simulation()
        self._compute, self._copies = Queue(self._simulation), Queue(self._simulation)
        self._times = {name: plan.times(name) for name in ("load", "copy", *PASSES, *(f"{p} launch" for p in PASSES))}
        self._loaded = [Signal() for _ in range(plan.steps + 2)]
        self._taken = [Signal() for _ in range(plan.steps + 2)]
        self._asked: list[int] = []
        self._came: list[int] = []
        self.wall_ns = 0
        self._simulation.start(self._loader())
        self._simulation.start(self._host())
        self._simulation.run()

    def _loader(self) -> Process:
        for k, loaded in enumerate(self._loaded):
            if k >= DEPTH:
                yield self._taken[k - DEPTH]
            yield next(self._times["load"])
            self._simulation.happen(loaded)

    def _fetch(self) -> Process:
        k = len(self._came)
        self._asked.append(self._simulation.now)
        yield self._loaded[k]
        self._came.append(self._simulation.now)
        self._simulation.happen(self._taken[k])

    def _copy(self, queue: Queue) -> Generator[int | Signal, None, Signal]:
        done = queue.put("h2d", next(self._times["copy"]))
        if not self._plan.pinned:
            yield done
        return done

    def _synchronize(self) -> Process:
        for queue in (self._compute, self._copies):
            yield queue.put("end", 0)

    def _host(self) -> Process:
        stream, ahead = self._plan.prefetcher == "stream", self._plan.prefetcher == "next_batch"
        copied = Signal()
        if stream or ahead:
            yield from self._fetch()
            copied = yield from self._copy(self._copies if stream else self._compute)
        yield from self._synchronize()
        begun = self._simulation.now
        for _ in range(self._plan.steps):
            yield from self._fetch()
            if stream:
                following = yield from self._copy(self._copies)
                self._compute.put("first", 0)
                self._compute.put("wait", 0, copied)
                copied = following
            else:
                self._compute.put("first", 0)
                if not ahead:
                    yield from self._copy(self._compute)
            for name in PASSES:
                yield next(self._times[f"{name} launch"])
                self._compute.put(name, next(self._times[name]))
                if ahead and name == "backward":
                    yield from self._copy(self._compute)
            self._compute.put("last", 0)
        yield from self._synchronize()
        self.wall_ns = self._simulation.now - begun

    def ends(self, name: str) -> list[int]:
        """When the device was done with one part of every step; of copies, those of the steps."""
        queue = self._copies if name == "h2d" and self._plan.prefetcher == "stream" else self._compute
        return [end for _, end in queue.done[name][-self._plan.steps :]]

    def took(self, name: str) -> list[int]:
        queue = self._copies if name == "h2d" and self._plan.prefetcher == "stream" else self._compute
        return [end - begin for begin, end in queue.done[name][-self._plan.steps :]]

    def spans(self) -> dict[str, list[int]]:
        """From the end of the part before to the end of each part: gaps in which nothing was issued belong to it."""
        order = {
            "none": ("first", "h2d", *PASSES),
            "next_batch": ("first", "forward", "backward", "h2d", "optimizer"),
            "stream": ("wait", *PASSES),
        }[self._plan.prefetcher]
        found = {b: [y - x for x, y in zip(self.ends(a), self.ends(b), strict=True)] for a, b in pairwise(order)}
        found["h2d"] = found.get("h2d", self.took("h2d"))
        return found

    def exposed(self) -> list[int]:
        """What the compute stream waited for copies."""
        return self.took("wait") if self._plan.prefetcher == "stream" else self.spans()["h2d"]

    def idle(self) -> list[int]:
        """From the end of one step to the beginning of the next."""
        return [0, *(b - a for a, b in zip(self.ends("last")[:-1], self.ends("first")[1:], strict=True))]

    def half_ratio(self) -> float:
        """Pace of the second half of the steps by that of the first, each from end to end of the device's work."""
        ends, middle = [self.ends("first")[0], *self.ends("last")], self._plan.steps // 2
        first, second = ends[middle] - ends[0], ends[-1] - ends[middle]
        return (self._plan.steps - middle) / second / (middle / first)

    def waits(self) -> list[tuple[int, int]]:
        """When the batch of each step was asked for, and when it came."""
        return list(zip(self._asked, self._came, strict=True))[-self._plan.steps :]

    def starved(self) -> list[int]:
        """How long the compute stream had nothing to do while the batch of each step was waited for."""
        ends = [0, *self.ends("last")[:-1]]
        return [max(0, came - max(asked, end)) for (asked, came), end in zip(self.waits(), ends, strict=True)]
