"""Epochs that end before all workers have prepared what they may: more workers or stock cannot help."""

from __future__ import annotations

from statistics import median

from feedrate.attach.facts import Evidence, Fact


def check(evidence: Evidence) -> Fact | None:
    """A pass has fewer batches than workers × prefetch_factor."""
    batches = [one.batches for one in evidence.passes]
    if not batches or not 0 < median(batches) < evidence.stock:
        return None
    return Fact(
        f"an epoch has {median(batches):,.0f} batches, and workers may prepare {evidence.stock} at once",
        "fewer workers, or longer epochs: several passes over the data in one",
    )
