"""What does it cost to make a batch out of samples?

A batch is made either sample by sample (torchvision's ToTensor turns each into floating-point numbers, channels first,
and the default collation copies them together) or at once, from bytes. Both give the same numbers.

It does not show what augmentations cost, of which there are none here, nor a GPU that decodes by itself.
"""

from __future__ import annotations

from feedrate.plan.claim import Aside, Claim, pair
from feedrate.plan.suite import claims_suite
from feedrate.suites._cells import LMDB, PAIRS, PNG

_TOTENSOR = {"collate": "totensor"}
_FAST = {"collate": "fast", "normalize_on": "device"}

_CLAIMS = (
    Claim(
        id="totensor-transpose",
        says="Collating bytes and converting the whole batch is faster than ToTensor on every sample.",
        sources=("BOT",),
        design=(
            "A converts sample by sample in the loader, B copies bytes into a batch (fast_collate) and converts the "
            "batch once it is on the device; without a GPU that is the training process, and counts as loading, with "
            "one it does not, and B's loader hands over bytes. Raw pixels from LMDB, without workers and with two, and "
            "PNG files, whose decoding comes on top. Pixels are equal to 1e-6. The workers' stamps give the "
            "transform's share of loading in every record; the ratio here gives what is saved without it."
        ),
        figures=(
            "The transpose and copy of ToTensor are about 80 % of loading, says the source: without them loading would "
            "be five times as fast."
        ),
        effect=pair(_TOTENSOR, _FAST, LMDB, {**LMDB, **PAIRS}, PNG),
        asides=(
            Aside(
                "converted in the worker instead",
                pair(_TOTENSOR, {"collate": "fast", "normalize_on": "worker"}, {**LMDB, **PAIRS}),
            ),
        ),
    ),
)

SUITE = claims_suite("What does it cost to make a batch out of samples?", ("claims",), _CLAIMS)
