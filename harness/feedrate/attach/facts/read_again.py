"""Chunks or files that are read as a whole for each sample: far more bytes are read than delivered."""

from __future__ import annotations

from rich.filesize import decimal

from feedrate.attach.facts import Evidence, Fact
from feedrate.attach.records import BATCH, READ

AGAIN = 4.0
"""Bytes read for each that is delivered."""
LEAST_BYTES = 1 << 26
"""What is read of Python itself is less."""


def check(evidence: Evidence) -> Fact | None:
    """Workers read many times the bytes of their batches; what they map into memory is not counted."""
    every = [one for workers in evidence.workers for one in workers if len(one.of(READ))]
    delivered = sum(len(one.of(BATCH)) for one in every) * int(evidence.batch.get("bytes", 0))
    read = sum(int(one.of(READ)[:, 3].sum()) for one in every)
    if not delivered or read < max(LEAST_BYTES, AGAIN * delivered):
        return None
    return Fact(
        f"workers read {decimal(read)} to deliver {decimal(delivered)}",
        "store samples of the size that is used; of chunked files chunks of one sample, or samples of a chunk one "
        "after the other; open a file once, not for each sample",
        "waiting" if evidence.cause in ("reading", "unsettled") else "",
    )
