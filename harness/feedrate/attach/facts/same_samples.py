"""Workers of an IterableDataset that does not split itself: each yields all samples."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact
from feedrate.attach.records import alike
from feedrate.schema.words import plural


def check(evidence: Evidence) -> Fact | None:
    """The first batches of all workers of a pass are equal, and the data set is iterable."""
    if not evidence.loader.settings.get("iterable"):
        return None
    for workers in evidence.workers:
        if count := alike(workers):
            return Fact(
                f"all {plural(count, 'worker')} yield the same samples, so that each comes {count} times",
                "split the IterableDataset by torch.utils.data.get_worker_info()",
            )
    return None
