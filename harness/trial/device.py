"""The device's own clock: CUDA events at the borders of stages, read after the window.

Events are made before the window and recorded on the compute stream; nothing synchronises inside it. The time between
two events is a *span*: it contains launch gaps and is no measure of how busy the device was. From one step's last event
to the next step's first the device had nothing of this step to do: that is ``idle``.

Copies on a stream of their own have events there, and their span is ``h2d``. On the compute stream that phase is then
the wait for a copy that was begun a step before: the *exposed* copy. The next copy is issued before the step's first
event: where the device has nothing to do meanwhile, it is ``idle``. On one stream all of a copy is waited for.

``timing = serialized`` synchronises after every stage instead; it is a value of an axis of its own, for cross-checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import torch

from harness.trial.stages import Stage

COPY = "h2d"


class Event(Protocol):
    """What is needed of ``torch.cuda.Event``."""

    def record(self) -> None:
        """Mark the place on the current stream."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds from this event to a later one."""


def cuda_event() -> Event:
    """Make one event that keeps time."""
    event: Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event


class Timeline:
    """Events for a fixed number of steps, ``len(phases) + 1`` borders a step."""

    def __init__(self, phases: Sequence[str], make: Callable[[], Event] = cuda_event) -> None:
        self.phases = tuple(phases)
        self._make = make
        self._events: list[list[Event]] = []
        self._copies: list[tuple[Event, Event]] | None = None
        self._step = 0

    def reset(self, capacity: int) -> None:
        """Make events for ``capacity`` steps and start over; called outside a window.

        Steps beyond get theirs when they come, which costs them some microseconds.
        """
        self._extend(capacity - len(self._events))
        self._step = 0

    def _make_room(self) -> None:
        if self._step == len(self._events):
            self._extend(1)

    def _extend(self, steps: int) -> None:
        """Make events and record each once: CUDA creates an event when it is first recorded."""
        for _ in range(steps):
            self._events.append([self._recorded() for _ in range(len(self.phases) + 1)])
            if self._copies is not None:
                self._copies.append((self._recorded(), self._recorded()))

    def _recorded(self) -> Event:
        event = self._make()
        event.record()
        return event

    def instrument(self, stages: Sequence[Stage]) -> list[Stage]:
        """Wrap stages so that each records the event at its end, and the first also the one at its start."""
        last = len(stages) - 1
        return [Stage(s.phase, self._wrap(s.run, border, border == last)) for border, s in enumerate(stages)]

    def _wrap(self, run: Callable[[Any], Any], border: int, last: bool) -> Callable[[Any], Any]:
        def timed(state: Any) -> Any:
            if border == 0:
                self._make_room()
                self._events[self._step][0].record()
            events = self._events[self._step]
            result = run(state)
            events[border + 1].record()
            if last:
                self._step += 1
            return result

        return timed

    def beside(self, move: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a copy that is begun on another stream, so that events stand around it there.

        Args:
            move: is called once a step, before the first stage and with that stream as the current one.
        """
        copies = self._copies = []

        def timed(batch: Any) -> Any:
            self._make_room()
            begins, ends = copies[self._step]
            begins.record()
            result = move(batch)
            ends.record()
            return result

        return timed

    def half_ratio(self, multiple: int) -> float | None:
        """Throughput of the second half of the steps over that of the first, by the device's clock.

        A host that runs ahead of its device sees the first half as fast and the end as slow; the device does not.
        """
        middle = self._step // 2 // multiple * multiple
        if not middle:
            return None
        used = self._events[: self._step]
        first, whole = used[0][0].elapsed_time(used[middle - 1][-1]), used[0][0].elapsed_time(used[-1][-1])
        return (self._step - middle) / (whole - first) / (middle / first)

    def spans(self) -> dict[str, list[int]]:
        """Read the window's events; the device must have been synchronised.

        Returns:
            Phase to nanoseconds of each step, and ``idle``: the gap before each step (0 before the first).
        """
        used = self._events[: self._step]
        found = {phase: self._between(border) for border, phase in enumerate(self.phases)}
        if self._copies is not None:
            found[COPY] = [_ns(*pair) for pair in self._copies[: self._step]]
        gaps = [_ns(a[-1], b[0]) for a, b in pairwise(used)]
        found["idle"] = [0, *gaps] if used else []
        return found

    def exposed(self) -> list[int] | None:
        """Read what the compute stream waited for copies in each step, in nanoseconds; None where none is copied."""
        return self._between(self.phases.index(COPY)) if COPY in self.phases else None

    def _between(self, border: int) -> list[int]:
        return [_ns(step[border], step[border + 1]) for step in self._events[: self._step]]


def _ns(begins: Event, ends: Event) -> int:
    return round(begins.elapsed_time(ends) * 1e6)


def serialize(stages: Sequence[Stage], synchronize: Callable[[], None]) -> list[Stage]:
    """Wrap stages so that the host waits for the device after each."""

    def waiting(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed(state: Any) -> Any:
            result = run(state)
            synchronize()
            return result

        return timed

    return [Stage(stage.phase, waiting(stage.run)) for stage in stages]
