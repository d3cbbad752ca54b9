"""A CUDA device that is not there: streams, events, copies and kernels of planted lengths, under PyTorch's names.

Work on a stream begins when it has been issued, when the work before it has ended, and when the events that the stream
waits for have happened. A stream can wait only for what was issued before, so all of that is known when work is issued:
a stream keeps when each of its pieces ends, and needs no thread of its own. As on a device,

- issuing returns at once, until ``QUEUE`` pieces of work are waiting; then the host waits for the oldest;
- a copy blocks the host unless its source is pinned and it was asked not to;
- an event that has not happened has no time yet, and reading it is an error;
- a kernel that reads a tensor of another stream must run behind its copy, and that tensor must have been told
  (``record_stream``), or its memory may be given away: here either is an error.

The host's clock is moved by planted times alone: what is measured by it is exact, however busy the machine is. Threads
that sleep for planted times would add that machine's noise and nothing else, as whoever issues work cannot tell.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

QUEUE = 1024
"""Pieces of work that wait on a stream before the host does."""
CLOCK_HZ = 1_755_000_000
"""Of the device; a spin lasts as many cycles as it is told."""


@dataclass
class Clock:
    """The host's clock, in nanoseconds: it moves when the host waits or works, and by nothing else."""

    ns: int = 1

    def now(self) -> int:
        return self.ns

    def wait_until(self, ns: int) -> None:
        self.ns = max(self.ns, ns)


@dataclass(eq=False)
class Stream:
    """Work in the order in which it is issued."""

    device: FakeDevice
    free_at: int = 0
    """When all that was issued so far ends."""
    waiting: deque[int] = field(default_factory=deque)
    """When each piece ends that has not ended."""

    def issue(self, ns: int) -> int:
        """Issue work that takes so long; gives when it begins."""
        clock = self.device.clock
        while self.waiting and self.waiting[0] <= clock.now():
            self.waiting.popleft()
        if len(self.waiting) == QUEUE:
            clock.wait_until(self.waiting.popleft())
        begins = max(clock.now(), self.free_at)
        self.free_at = begins + ns
        self.waiting.append(self.free_at)
        return begins

    def wait_event(self, event: Event) -> None:
        self.free_at = max(self.free_at, event.at or 0)

    def synchronize(self) -> None:
        self.device.clock.wait_until(self.free_at)

    def __enter__(self) -> None:
        """Make it the current one."""
        self.before, self.device.current = self.device.current, self

    def __exit__(self, *_: object) -> None:
        self.device.current = self.before


@dataclass(eq=False)
class Event:
    """A moment on a stream."""

    device: FakeDevice
    enable_timing: bool = False
    at: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.at = (stream or self.device.current).issue(0)

    def query(self) -> bool:
        return self.at is None or self.at <= self.device.clock.now()

    def synchronize(self) -> None:
        self.device.clock.wait_until(self.at or 0)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds until another event."""
        if not (self.enable_timing and end.enable_timing):
            raise RuntimeError("both events must keep time")
        if self.at is None or end.at is None or not (self.query() and end.query()):
            raise RuntimeError("an event has not happened yet")
        return (end.at - self.at) / 1e6


@dataclass(eq=False)
class Copied:
    """A tensor on the device."""

    number: int
    ready_at: int
    known_to: set[Stream]

    def record_stream(self, stream: Stream) -> None:
        self.known_to.add(stream)


@dataclass(eq=False)
class HostTensor:
    """A tensor of the host; its copy to the device takes so long."""

    device: FakeDevice
    copy_ns: int
    pinned: bool
    number: int = 0

    def to(self, _: Any, *, non_blocking: bool) -> Copied:
        """Copy it, on the current stream."""
        stream = self.device.current
        ready_at = stream.issue(self.copy_ns) + self.copy_ns
        if not (self.pinned and non_blocking):
            self.device.clock.wait_until(ready_at)
        return Copied(self.number, ready_at, {stream})


class FakeDevice:
    """One device with one compute stream, and as many others as are made."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.streams: list[Stream] = []
        self.current = self.make_stream()

    def make_stream(self) -> Stream:
        self.streams.append(Stream(self))
        return self.streams[-1]

    def make_event(self, enable_timing: bool = False) -> Event:
        return Event(self, enable_timing)

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()

    def spin(self, cycles: int) -> None:
        self.current.issue(round(cycles * 1e9 / CLOCK_HZ))

    def launch(self, host_ns: int, ns: int, reads: tuple[Copied, ...] = ()) -> None:
        """Issue a kernel, which takes the host a while before the device gets it."""
        self.clock.wait_until(self.clock.now() + host_ns)
        begins = self.current.issue(ns)
        for tensor in reads:
            assert tensor.ready_at <= begins, "a kernel reads what is not copied yet"
            assert self.current in tensor.known_to, "a kernel reads memory that may be given away"

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the device behind PyTorch's names, and its clock behind the host's."""
        monkeypatch.setattr(time, "perf_counter_ns", self.clock.now)
        monkeypatch.setattr(torch, "Event", self.make_event)
        monkeypatch.setattr(torch, "Stream", self.make_stream)
        monkeypatch.setattr(torch.accelerator, "current_stream", lambda: self.current)
        monkeypatch.setattr(torch.accelerator, "synchronize", self.synchronize)
        monkeypatch.setattr(torch.cuda, "_sleep", self.spin)
        # The hook knows PyTorch 2.4, which has CUDA's names alone.
        monkeypatch.setattr(torch.cuda, "Event", self.make_event)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: self.current)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
