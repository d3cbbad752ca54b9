"""When a batch is moved to the device.

``prefetcher`` decides when a batch is moved:

==========  ===================================================================================================
none        in its own step, before the forward pass
next_batch  in the step before, on the compute stream, once that step's forward and backward passes are launched
stream      in the step before, on a stream of its own, before that step's forward pass is launched
==========  ===================================================================================================

With the last two a step fetches and moves the batch of the *next* step: its phases ``fetch`` and ``h2d`` are what it
spends on that one, and its forward pass takes the batch that was moved a step ago. All batches arrive once and in
order; the first is taken before the warm-up, and the last that was moved is not trained on.

Memory is safe: a batch that was made on the copy stream is told that the compute stream uses it (``record_stream``),
so that the caching allocator gives its memory to no later copy before the step is done; PyTorch's pinned memory waits
for its copies by itself. Source: the data prefetcher of NVIDIA's Apex examples (imagenet), which waits for a batch
before it begins to move the next one. Here the next one is begun first, and an event says where the copies before it
end: the work of the streams is the same, and nothing that the host does lies within the wait (``device.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from harness.trial.job import Job
from harness.trial.loader import Batch, Fields
from harness.trial.stages import Stage

Move = Callable[[Batch], Fields]
PASSES = ("forward", "backward")


class Ahead(NamedTuple):
    """A row of stages, and how far it is ahead of its batches."""

    row: list[Stage]
    held: int
    """Batches that were taken from the loader and are trained on later."""
    streamed: Streamed | None
    """What copies on another stream."""


def ahead(job: Job, row: list[Stage], batches: Iterator[Batch]) -> Ahead:
    """Rearrange a step so that it moves batches when ``prefetcher`` says.

    Args:
        job: the trial.
        row: the step; with a prefetcher, h2d is its first stage.
        batches: where a prefetcher takes the first batch from.
    """
    if job.value("prefetcher") == "none":
        return Ahead(row, 0, None)
    copy, first, *rest = row
    if job.value("prefetcher") == "stream":
        streamed = Streamed(copy.run, next(batches))
        return Ahead([copy._replace(run=streamed.advance), first, *rest], 1, streamed)
    moved = NextBatch(copy.run, next(batches))
    forward = first.run
    passes = [stage for stage in rest if stage.phase in PASSES]
    others = [stage for stage in rest if stage.phase not in PASSES]
    begins = first._replace(run=lambda batch: forward(moved.take(batch)))
    return Ahead([begins, *passes, copy._replace(run=moved.advance), *others], 1, None)


class NextBatch:
    """One batch on the device, and the next one on the host until the passes over the first are launched."""

    def __init__(self, move: Move, first: Batch) -> None:
        """Move the first batch.

        Args:
            move: copies a batch to the device, on the current stream.
            first: of the trial.
        """
        self._move = move
        self._ready = move(first)
        self._coming = first

    def take(self, batch: Batch) -> Fields:
        """Put the next batch aside and hand out the one on the device."""
        self._coming = batch
        return self._ready

    def advance(self, state: Any) -> Any:
        """Move the batch that was put aside; what the stage before returned is passed on."""
        self._ready = self._move(self._coming)
        return state


class Streamed:
    """One batch on the device or on its way there, over a stream of its own."""

    def __init__(self, move: Move, first: Batch) -> None:
        """Begin to move the first batch.

        Args:
            move: copies a batch to the device, on the current stream.
            first: of the trial.
        """
        self.move = move
        """What runs on the copy stream; a timeline puts its events around it."""
        self.wait: Callable[[Fields], Fields] = self._wait
        """What has the compute stream wait for a batch; a timeline puts its events around it too."""
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._ready = self._issue(first)

    def _issue(self, batch: Batch) -> Fields:
        with torch.cuda.stream(self._stream):
            return self.move(batch)

    def advance(self, batch: Batch) -> Fields:
        """Begin to move the next batch, have the compute stream wait for the one that is on its way, hand that out."""
        self._copied.record(self._stream)
        ready, self._ready = self._ready, self._issue(batch)
        return self.wait(ready)

    def _wait(self, ready: Fields) -> Fields:
        compute = torch.cuda.current_stream()
        compute.wait_event(self._copied)
        for field in ready:
            field.record_stream(compute)
        return ready
