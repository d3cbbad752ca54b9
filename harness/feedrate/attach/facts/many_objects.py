"""Batches of very many small tensors: each is handed over, and pinned, by itself."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact
from feedrate.schema.words import plural

MANY, SMALL = 64, 16_384
"""Tensors of a batch, and bytes of each, beyond and below which handing them over costs more than their bytes."""


def check(evidence: Evidence) -> Fact | None:
    """A batch has many tensors, which are small, and workers send them."""
    objects, size = int(evidence.batch.get("objects", 0)), int(evidence.batch.get("bytes", 0))
    if not evidence.num_workers or objects < MANY or size / objects > SMALL:
        return None
    return Fact(
        f"a batch has {plural(objects, 'tensor')} of {size // objects:,} bytes on average",
        "put what is alike into one tensor: pad, or concatenate and keep the lengths",
        "receiving",
    )
