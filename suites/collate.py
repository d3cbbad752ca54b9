"""What does it cost to make a batch out of samples?

A batch is made either sample by sample (torchvision's ToTensor turns each into floating-point numbers, channels first,
and the default collation copies them together) or at once, from bytes. Both give the same numbers.

It does not show what augmentations cost, of which there are none here, nor a GPU that decodes by itself.
"""

from __future__ import annotations

from feedrate.plan.claim import Aside, Claim, level, pair
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
            "No pair: the time that the processes which load spend in ToTensor and in putting the batch together, as "
            "a share of all that they spend on reading, decoding and these two, by stamps around each; it is compared "
            "with 0.8. Raw pixels from LMDB, without workers and with two, and PNG files, whose decoding comes on top. "
            "What loading gains where bytes are collated and converted once on the device (fast_collate; without a GPU "
            "in the training process) stands beside it; its pixels are equal to 1e-6."
        ),
        not_shown=(
            "What lies outside the stamps: handing batches over, and waiting. Formats that are dearer to read, of "
            "whose loading the conversion is a smaller share still."
        ),
        figures="About 80 % of the loading time.",
        effect=level("transform_share", LMDB, {**LMDB, **PAIRS}, PNG, figure=0.8),
        asides=(
            Aside("converted on the device instead", pair(_TOTENSOR, _FAST, LMDB, {**LMDB, **PAIRS}, PNG)),
            Aside(
                "converted in the worker instead",
                pair(_TOTENSOR, {"collate": "fast", "normalize_on": "worker"}, {**LMDB, **PAIRS}),
            ),
        ),
    ),
)

SUITE = claims_suite("What does it cost to make a batch out of samples?", ("claims",), _CLAIMS)
