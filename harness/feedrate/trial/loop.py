"""The measured loop, and what a window of it shows.

Throughput is samples divided by the wall clock of the window and nothing else. A window ends after at least
``window_ns`` and ``min_steps``, on a multiple of the workers, as workers deliver in bursts. The device is
synchronised once before it and once after. Phases share their borders' stamps, but ``other`` begins with a stamp of its
own, so that the sum of the phases can miss the wall clock, and how far it does is published (closure).
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from feedrate.loaders import Batch
from feedrate.trial.stages import Stage

FASTEST_STEP_NS = 10_000
"""Stamps are allocated before a window, for a step every 10 us; a loop that is faster ends its window early."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a stretch of steps may end."""

    window_ns: int
    """Least wall clock."""
    min_steps: int
    multiple: int
    """It ends on a multiple of this: the workers, or 1."""
    capacity: int
    """Most steps, a multiple of ``multiple``; stamps are allocated for so many."""

    @classmethod
    def rounded(cls, window_s: float, min_steps: int, multiple: int) -> Limits:
        """Round up to whole bursts, and make room for the fastest loop."""
        window_ns = int(window_s * 1e9)
        min_steps = -(-min_steps // multiple) * multiple
        room = window_ns // FASTEST_STEP_NS // multiple * multiple
        return cls(window_ns, min_steps, multiple, max(min_steps, room))


@dataclass(frozen=True, slots=True)
class Window:
    """Raw stamps of a stretch of steps, host clock, nanoseconds."""

    phases: tuple[str, ...]
    """Names of the columns: fetch, the stages, other."""
    started: int
    """After the synchronisation before."""
    ended: int
    """After the synchronisation behind."""
    drained: int
    """What the synchronisation behind took; part of ``other``."""
    steps: int
    stamps: array[int]
    """``steps`` × (fetch begins, fetch ends, each stage ends, other begins), then the end of the last ``other``."""
    tags: list[bytes]
    """The workers' stamps of each batch."""
    lead_in: tuple[int, ...] = ()
    """When each step ended that came right before the window and is no part of it."""

    @property
    def wall_ns(self) -> int:
        """Wall clock of the window."""
        return self.ended - self.started

    def borders(self) -> array[int]:
        """When each step began, and when the last one ended: steps + 1 stamps."""
        width = len(self.phases) + 1
        return self.stamps[: self.steps * width + 1 : width]

    def durations(self) -> dict[str, list[int]]:
        """Phase to nanoseconds of each step."""
        width, last = len(self.phases) + 1, self.steps * (len(self.phases) + 1)
        columns = [self.stamps[i:last:width] for i in range(width)] + [self.borders()[1:]]
        # "other" begins with a stamp of its own, one column behind the end of the last stage.
        begins = [*range(width - 2), width - 1]
        return {
            phase: [end - begin for begin, end in zip(columns[i], columns[i + 1], strict=True)]
            for phase, i in zip(self.phases, begins, strict=True)
        }

    def pace_ns(self) -> int:
        """Host time of a step, over the second half of the steps: what comes first may pay for start-up."""
        borders, half = self.borders(), self.steps // 2
        return max(1, (borders[-1] - borders[half]) // max(1, self.steps - half))

    def half_ratio(self, multiple: int) -> float | None:
        """Throughput of the second half over that of the first; halves end on a multiple of the workers."""
        middle = self.steps // 2 // multiple * multiple
        if not middle:
            return None
        border = self.borders()[middle]
        first, second = middle / (border - self.started), (self.steps - middle) / (self.ended - border)
        return second / first


def measure(
    batches: Iterator[Batch],
    stages: Sequence[Stage],
    limits: Limits,
    synchronize: Callable[[], None],
    opens: Callable[[], None] = lambda: None,
    lead_in: int = 0,
) -> Window:
    """Run steps until the limits allow an end, after ``lead_in`` steps that are not part of the window.

    Whatever takes time before the clock starts, lets workers fill the stock of prefetched batches, and a window that
    begins with a full stock is too fast. So all is allocated first, then the stock is consumed; ``opens``, which must
    take no time, is called right before the clock starts.
    """
    now = time.perf_counter_ns
    runs = [stage.run for stage in stages]
    stamps = array("q", bytes(8 * (limits.capacity * (len(runs) + 3) + 1)))
    tags = [b""] * limits.capacity
    least, multiple, capacity = limits.min_steps, limits.multiple, limits.capacity
    step = at = 0
    before = []
    for batch in islice(batches, lead_in):
        state: Any = batch
        for run in runs:
            state = run(state)
        before.append(now())
    synchronize()
    opens()
    started = now()
    deadline = started + limits.window_ns
    going = True
    stamps[at] = now()
    while going:
        batch = state = next(batches)
        at += 1
        stamps[at] = now()
        for run in runs:
            state = run(state)
            at += 1
            stamps[at] = now()
        at += 1
        stamps[at] = moment = now()
        tags[step] = batch.stamps
        step += 1
        going = (moment < deadline or step < least or step % multiple != 0) and step < capacity
        at += 1
        stamps[at] = now()
    last = now()
    synchronize()
    ended = now()
    names = ("fetch", *(stage.phase for stage in stages), "other")
    return Window(names, started, ended, ended - last, step, stamps, tags, tuple(before))
