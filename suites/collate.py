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
        says="ToTensor’s transpose and copy of every sample take about 80 % of the time of loading.",
        sources=("BOT",),
        design=(
            "A converts sample by sample in the loader, B copies bytes into a batch (fast_collate) and converts the "
            "batch once it is on the device; without a GPU that is the training process, and counts as loading, with "
            "one it does not, and B's loader hands over bytes. Raw pixels from LMDB, without workers and with two, and "
            "PNG files, whose decoding comes on top. Pixels are equal to 1e-6. What takes 80 % makes loading five "
            "times as fast when it goes: the ratio is compared with 5, not with 1."
        ),
        not_shown="Formats that are dearer to read, of whose loading the conversion is a smaller share still.",
        figures=("About 80 % of the loading time; so loading without them would be five times as fast."),
        effect=pair(_TOTENSOR, _FAST, LMDB, {**LMDB, **PAIRS}, PNG, figure=5.0),
        asides=(
            Aside(
                "converted in the worker instead",
                pair(_TOTENSOR, {"collate": "fast", "normalize_on": "worker"}, {**LMDB, **PAIRS}),
            ),
        ),
    ),
)

SUITE = claims_suite("What does it cost to make a batch out of samples?", ("claims",), _CLAIMS)
