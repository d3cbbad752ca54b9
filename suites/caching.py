"""Does it pay to prepare samples once and read them back?

One way writes every transformed sample to disk once and reads it afterwards. The other way does so with every batch.
Measurements that find a cache record how long filling it took.

It does not show augmentation: a cache holds the same samples in every epoch. It does not show a disk: caches lie in
memory after they were written.
"""

from __future__ import annotations

from feedrate.plan.claim import Claim, pair
from feedrate.plan.suite import claims_suite
from feedrate.suites._cells import LMDB, PAIRS, PNG

_NONE, _SAMPLE, _BATCH = {"cache": "none"}, {"cache": "sample"}, {"cache": "batch"}

_CLAIMS = (
    Claim(
        id="disk-cache",
        says="Caching prepared samples on disk pays where reading them is cheaper than preparing them.",
        sources=("AIDA",),
        design="""A decodes and converts every sample in every epoch. B reads the samples that were prepared once. Both
        give the same samples in the same order, bit by bit. PNG files of 64 pixels cost much to decode. We read them
        without workers and with two. The first epoch fills the cache. We time it apart, and it counts for neither side.
        We also measure raw pixels from LMDB, which cost little to prepare. There a cache holds four times the
        bytes.""",
        not_shown="""A disk: caches lie in memory after they were written. Decoding PNG costs much, so the sentence’s
        condition is true by construction. We test that nothing else takes the gain away.""",
        by_construction=True,
        effect=pair(_NONE, _SAMPLE, PNG, {**PNG, **PAIRS}),
        asides={"raw pixels from LMDB": pair(_NONE, _SAMPLE, LMDB)},
    ),
    Claim(
        id="batch-cache",
        says="Caching whole batches beats caching samples.",
        sources=("AIDA",),
        design="""A reads prepared samples and makes batches of them. B reads prepared batches. An epoch has the same
        samples on both sides. We measure without workers and with two. B gives up shuffling within batches: every epoch
        has the same batches in a new order.""",
        not_shown="The effect on training of batches that are always the same.",
        effect=pair(_SAMPLE, _BATCH, PNG, {**PNG, **PAIRS}),
    ),
)

SUITE = claims_suite("Does it pay to prepare samples once and read them back?", ("claims",), _CLAIMS)
