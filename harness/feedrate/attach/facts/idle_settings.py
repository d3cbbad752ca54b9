"""Settings of a loader that do nothing where it runs."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact


def check(evidence: Evidence) -> Fact | None:
    """Memory is pinned, and no device is there that would copy from it."""
    if evidence.loader.settings.get("pin_memory") and not evidence.cuda:
        return Fact("pin_memory=True does nothing, as the script uses no CUDA", "leave pin_memory out")
    return None
