"""Batches that are kept and used again, as ``itertools.cycle`` does: the training goes on behind its last batch."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact


def check(evidence: Evidence) -> Fact | None:
    """A share of the updates follows the end of the last pass."""
    if not (steps := evidence.account.kept_steps):
        return None
    return Fact(
        f"{steps:,} optimizer steps follow the last batch: batches are kept and used again, in the same order",
        "in the place of itertools.cycle a generator that goes over the loader anew: while True: yield from loader",
    )
