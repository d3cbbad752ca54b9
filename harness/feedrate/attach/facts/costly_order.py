"""Batches that lie ready behind a slow one, while workers have nothing to do."""

from __future__ import annotations

from feedrate.attach.causes import WAITING
from feedrate.attach.facts import Evidence, Fact
from feedrate.schema.words import percent

WORTH = 0.02
"""Less of the time is not worth a line."""


def check(evidence: Evidence) -> Fact | None:
    """The order of batches costs a share of the time that is worth a line."""
    share = evidence.account.share("waiting") * evidence.waits.get("order", 0.0)
    if share < WORTH or evidence.cause == "order":
        return None
    return Fact(
        f"{percent(share)} of the time batches lie ready behind a slow one, and workers idle", WAITING["order"].remedy
    )
