"""A script that may use fewer cores than it was started with: an import, or OpenMP, has pinned it."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact

_COMPUTING = ("cores", "threads", "computing", "collating")


def check(evidence: Evidence) -> Fact | None:
    """Its affinity has shrunk since it was started; ranks are pinned on purpose."""
    few, all_cores = evidence.outside.allowed, evidence.outside.given
    if not 0 < few < all_cores or int(evidence.loader.settings.get("ranks") or 1) > 1:
        return None
    return Fact(
        f"the script pinned itself to {few} of its {all_cores} cores, and its workers with it",
        "give it all with os.sched_setaffinity behind the imports; do without OMP_PROC_BIND and GOMP_CPU_AFFINITY",
        "waiting" if evidence.cause in _COMPUTING else "",
    )
