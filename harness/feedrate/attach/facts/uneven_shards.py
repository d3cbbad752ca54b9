"""Workers that run out of data long before others do, as shards of unlike sizes leave them."""

from __future__ import annotations

import numpy as np

from feedrate.attach.facts import Evidence, Fact
from feedrate.attach.records import BATCH
from feedrate.schema.words import percent

WORTH = 0.5
"""Of the waits."""


def check(evidence: Evidence) -> Fact | None:
    """Most of the waits for an iterable data set come when half of its workers have nothing left."""
    if not evidence.loader.settings.get("iterable"):
        return None
    steps = evidence.loader.steps
    begun, took = steps["begun_ns"].to_numpy(), (steps["got_ns"] - steps["begun_ns"]).to_numpy()
    waited = np.zeros(2, np.int64)
    for workers in evidence.workers:
        spans = [(int(rows[:, 1].min()), int(rows[:, 2].max())) for one in workers if len(rows := one.of(BATCH))]
        if len(spans) > 1:
            ends = sorted(end for _, end in spans)
            since = min(begin for begin, _ in spans), ends[(len(ends) - 1) // 2]
            waited += [int(took[(begun >= at) & (begun <= ends[-1])].sum()) for at in since]
    every, late = waited
    if not every or late < WORTH * every:
        return None
    return Fact(
        f"{percent(late / every)} of the waits come when half of the workers have no data left",
        "shards of like length, several for each worker",
        "waiting",
    )
