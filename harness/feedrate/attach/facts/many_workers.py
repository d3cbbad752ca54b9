"""More workers that compute than there are cores for them."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact


def check(evidence: Evidence) -> Fact | None:
    """Workers outnumber the script's cores, and mostly compute as they prepare."""
    cores, did = evidence.outside.cores, evidence.activity
    if evidence.num_workers <= cores or did.get("computing", 0.0) < did.get("waiting", 0.0) or not did:
        return None
    return Fact(
        f"{evidence.num_workers} workers compute on {cores:g} core{'' if cores == 1 else 's'}",
        "as many workers as cores at most; more only where they wait for storage",
    )
