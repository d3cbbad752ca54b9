"""Epochs that end before all workers have prepared what they may: more workers or stock cannot help."""

from __future__ import annotations

from statistics import median

from feedrate.attach.facts import Evidence, Fact


def check(evidence: Evidence) -> Fact | None:
    """A pass has fewer batches than workers × prefetch_factor."""
    stock = evidence.num_workers * int(evidence.loader.settings.get("prefetch_factor") or 0)
    batches = [one.batches for one in evidence.passes]
    if not batches or not 0 < median(batches) < stock:
        return None
    return Fact(
        f"an epoch has {median(batches):,.0f} batches, and workers may prepare {stock} at once",
        "fewer workers, or longer epochs: several passes over the data in one",
    )
