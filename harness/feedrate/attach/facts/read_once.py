"""Storage that is read in the first epoch alone: all others come from memory."""

from __future__ import annotations

import numpy as np
from rich.filesize import decimal

from feedrate.attach.facts import Evidence, Fact

LEAST_BYTES = 1 << 26
LATER = 0.1
"""Most that a later pass reads of what the first did."""


def check(evidence: Evidence) -> Fact | None:
    """The first pass over the data reads much from storage, and none of the others a tenth of it."""
    passes = [one for one in evidence.passes if one.batches]
    if len(passes) < 2 or not evidence.outside.read:
        return None
    at, read = np.array(evidence.outside.read, np.float64).T
    first, *others = (float(np.diff(np.interp((one.begun_ns, one.ended_ns), at, read))[0]) for one in passes)
    if first < LEAST_BYTES or max(others) > LATER * first:
        return None
    return Fact(
        f"storage is read in the first pass alone ({decimal(int(first))}): later ones come from memory",
        "judge the loader by later passes, as long as the data fit into memory",
    )
