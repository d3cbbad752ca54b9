"""Batches on their way that fill /dev/shm: a worker that finds no room there dies of a bus error."""

from __future__ import annotations

from rich.filesize import decimal

from feedrate.attach.facts import Evidence, Fact

FULL = 0.5
"""Share of it beyond which a larger batch or another program ends the training."""


def check(evidence: Evidence) -> Fact | None:
    """Workers × prefetch_factor batches take more than half of it."""
    need, size = evidence.stock * int(evidence.batch.get("bytes", 0)), evidence.outside.shm_bytes
    if not size or need <= FULL * size:
        return None
    return Fact(
        f"batches that wait take up to {decimal(need)} of /dev/shm, which has {decimal(size)}",
        "a larger /dev/shm (docker run --shm-size), fewer workers, or a smaller prefetch_factor",
    )
