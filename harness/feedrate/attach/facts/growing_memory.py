"""Memory that grows: workers copy the pages of Python objects that they only read, or something is kept."""

from __future__ import annotations

import numpy as np
from rich.filesize import decimal

from feedrate.attach.facts import Evidence, Fact
from feedrate.attach.records import places

LEAST_BYTES, LEAST = 1 << 28, 0.2
"""Growth in bytes, and as a share of what was there, that is worth a line."""


def check(evidence: Evidence) -> Fact | None:
    """Workers copied what they shared; else each third of the loop takes more memory than the one before."""
    if (copied := _most_copied(evidence)) >= LEAST_BYTES:
        return Fact(
            f"workers copied {decimal(copied)} that they had shared with the training process",
            "keep paths and labels in arrays or tensors: workers copy lists and dicts as they read them",
        )
    span = [one for one in evidence.passes if one.batches]
    if not span:
        return None
    begun, ended = span[0].begun_ns, span[-1].ended_ns
    inside = [(at, written) for at, written in evidence.outside.written if begun <= at <= ended]
    firsts = evidence.loader.steps[evidence.loader.steps["first"]]
    made, got = (firsts[name].to_numpy(np.int64) for name in ("made_ns", "got_ns"))
    _, starting = places(np.array([at for at, _ in inside], np.int64), made, got + 1)  # workers come to be, and import
    held = [(at, used) for (at, used), starts in zip(inside, starting, strict=True) if used and not starts]
    if len(held) < 3:
        return None
    first, middle, last = (float(np.mean(third)) for third in np.array_split([used for _, used in held], 3))
    if not first < middle < last or last - first < max(LEAST_BYTES, LEAST * first):
        return None
    return Fact(
        f"the processes' own memory grew by {decimal(int(last - first))} in {(held[-1][0] - held[0][0]) / 1e9:.0f} s",
        "keep no tensors from step to step, such as losses in a list, and bound what the data set caches",
    )


def _most_copied(evidence: Evidence) -> int:
    """Bytes that the workers of one pass made their own without having more: their pages were shared since a fork.

    Pages of files that a process maps are its own, too, where no other maps them: those it did not write to.
    """
    seen = evidence.outside.footprints
    passes = ([seen[worker.pid] for worker in workers if worker.pid in seen] for workers in evidence.workers)
    return max(
        (
            sum(last.dirty - first.dirty - max(0, last.anonymous - first.anonymous) for first, last in workers)
            for workers in passes
        ),
        default=0,
    )
