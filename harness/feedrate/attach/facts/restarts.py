"""Workers that are started anew in each epoch."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact
from feedrate.schema.words import percent

WORTH = 0.02
"""Less of the time is not worth a line."""


def check(evidence: Evidence) -> Fact | None:
    """Several passes have workers of their own, and starting them takes a share of the time."""
    settings, share = evidence.loader.settings, evidence.account.share("starting")
    if len(evidence.passes) < 2 or not evidence.num_workers or settings.get("persistent_workers") or share < WORTH:
        return None
    return Fact(
        f"workers are started anew in each of {len(evidence.passes)} passes, {percent(share)} of the time",
        "persistent_workers=True",
    )
