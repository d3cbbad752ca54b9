"""Workers that wait for one another: for a lock that all of them take, or for a Manager that serves one at a time."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact
from feedrate.schema.words import percent

LEAST = 0.2
"""Share of preparing that is worth a line."""


def check(evidence: Evidence) -> Fact | None:
    """Stacks of workers lie in what they share."""
    if evidence.shared < LEAST or evidence.num_workers < 2:
        return None
    return Fact(
        f"workers wait for one another, in a lock or a Manager, {percent(evidence.shared)} of the time that they "
        "prepare batches",
        "give each worker its own (open files in the worker, a cache of its own); more workers wait only longer",
        "waiting",
    )
