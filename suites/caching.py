"""Does it pay to prepare samples once and read them back?

Either every transformed sample is written to disk once and read afterwards, or every batch. Trials that find a cache
record what filling it took.

It does not show augmentation: what is cached is the same in every epoch. Nor does it show a disk, as caches lie in
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
        give the same samples in the same order, bit by bit. PNG files of 64 pixels, which are dear to decode, without
        workers and with two. The first epoch, which fills the cache, is timed apart and counts for neither side. Raw
        pixels from LMDB, which are cheap to prepare, stand beside it: there a cache holds four times the bytes.""",
        not_shown="""A disk: caches lie in memory after they were written. And decoding PNG is dear, so that the
        sentence’s condition is true by construction. What is tested is that nothing else takes the gain away.""",
        by_construction=True,
        effect=pair(_NONE, _SAMPLE, PNG, {**PNG, **PAIRS}),
        asides={"raw pixels from LMDB": pair(_NONE, _SAMPLE, LMDB)},
    ),
    Claim(
        id="batch-cache",
        says="Caching whole batches beats caching samples.",
        sources=("AIDA",),
        design="""A reads prepared samples and makes batches of them, B reads prepared batches. An epoch has the same
        samples, without workers and with two. B gives up shuffling within batches: every epoch has the same ones in a
        new order.""",
        not_shown="What batches that are always the same do to training.",
        effect=pair(_SAMPLE, _BATCH, PNG, {**PNG, **PAIRS}),
    ),
)

SUITE = claims_suite("Does it pay to prepare samples once and read them back?", ("claims",), _CLAIMS)
