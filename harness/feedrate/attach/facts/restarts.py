"""Workers that are started anew in each epoch."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact
from feedrate.schema.words import percent

WORTH = 0.02
"""Less of the time is not worth a line."""


def check(evidence: Evidence) -> Fact | None:
    """Several passes have workers of their own, and starting them takes a share of the time."""
    lasting, share = evidence.loader.settings.get("persistent_workers"), evidence.account.share("starting")
    many, anew = len(evidence.passes), evidence.loaders > max(1, len(evidence.passes) / 2)
    if many < 2 or not evidence.num_workers or (lasting and not anew) or share < WORTH:
        return None
    if anew:
        text = f"{evidence.loaders} loaders are made in one place, each with workers of its own"
        return Fact(
            f"{text}: starting them takes {percent(share)} of the time",
            "make the loader once, before the loop, with persistent_workers=True",
            explains="starting",
        )
    return Fact(
        f"workers are started anew in each of {many} passes, {percent(share)} of the time", "persistent_workers=True"
    )
