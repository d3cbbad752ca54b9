"""Workers that have nothing to give, as an iterable data set of fewer shards than workers leaves them."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact
from feedrate.attach.records import BATCH


def check(evidence: Evidence) -> Fact | None:
    """In a pass of more batches than workers some worker took less than a tenth of what the busiest did."""
    for workers in evidence.workers:
        counts = [len(one.of(BATCH)) for one in workers]
        idle = sum(count <= max(counts) / 10 for count in counts)
        if len(counts) > 1 and max(counts) >= 10 and idle:
            return Fact(
                f"{idle} of {len(counts)} workers gave nothing or next to nothing",
                "give each worker its part: as many shards as workers, or num_workers of as many as there are shards",
                "waiting" if 2 * idle >= len(counts) else "",
            )
    return None
