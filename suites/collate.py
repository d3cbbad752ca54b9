"""What does it cost to make a batch out of samples?

One way makes a batch sample by sample. torchvision's ToTensor turns each sample into floating-point numbers, channels
first. Then the default collation copies the samples together. The other way makes a batch at once, from bytes. Both
give the same numbers.

It does not show the cost of augmentations: there are none here. It does not show a GPU that decodes by itself.
"""

from __future__ import annotations

from feedrate.plan.claim import Claim, Part, change, level, pair
from feedrate.plan.suite import claims_suite
from feedrate.suites._cells import LMDB, PAIRS, PNG

_TOTENSOR = {"collate": "totensor"}
_PATCHES = {**LMDB, "patch_size": 16}
_FAST = {"collate": "fast", "normalize_on": "device"}

_CLAIMS = (
    Claim(
        id="totensor-transpose",
        says="ToTensor’s transpose and copy of every sample take about 80 % of the time of loading.",
        sources=("BOT",),
        design="""This claim has no pair: we compare ToTensor’s share of loading time with 0.8. Loading is reading,
        decoding, ToTensor and collation. The processes that load stamp the time of each. They read raw pixels from
        LMDB, without workers and with two. They also read PNG files, whose decoding comes on top. We also measure the
        gain of loading without the copy (.contiguous()). We also measure collating bytes and converting them once on
        the device (fast_collate). Without a GPU the training process converts them. Pixels are equal to 1e-6.""",
        not_shown="""Time outside the stamps: handing batches over, and waiting. Formats that cost more to read:
        conversion is an even smaller share of their loading.""",
        figures="The transpose and the copy take about 80 % of the loading time.",
        effect=level("transform_share", LMDB, {**LMDB, **PAIRS}, PNG, figure=0.8),
        asides={
            "without .contiguous()": change("collate", "totensor", "strided", LMDB),
            "converted on the device instead": pair(_TOTENSOR, _FAST, LMDB, {**LMDB, **PAIRS}, PNG),
            "converted in the worker instead": pair(
                _TOTENSOR, {"collate": "fast", "normalize_on": "worker"}, {**LMDB, **PAIRS}
            ),
        },
    ),
    Claim(
        id="native-code",
        says="Native code is faster than Python: use NumPy as much as possible.",
        sources=("BOT",),
        design="""A converts every value of a sample to floats in a Python loop. B converts the whole sample by NumPy.
        Both give the same numbers to 1e-6. Also, ToTensor, which converts in PyTorch’s native code, must beat the loop.
        All read 16-pixel patches of raw pixels from LMDB, without workers. We also measure NumPy against ToTensor.""",
        not_shown="Work other than a conversion: the cost of a loop depends on its work for each value.",
        by_construction=True,
        effect=change("collate", "loop", "numpy", _PATCHES),
        also=(Part("ToTensor", change("collate", "loop", "totensor", _PATCHES)),),
        asides={"from ToTensor to NumPy": change("collate", "totensor", "numpy", _PATCHES)},
    ),
)

SUITE = claims_suite("What does it cost to make a batch out of samples?", ("claims",), _CLAIMS)
