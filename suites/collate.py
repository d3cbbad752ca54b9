"""What does it cost to make a batch out of samples?

A batch is made either sample by sample or at once, from bytes. Sample by sample, torchvision's ToTensor turns each
into floating-point numbers, channels first, and the default collation copies them together. Both give the same
numbers.

It does not show what augmentations cost, of which there are none here, nor a GPU that decodes by itself.
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
        design="""No pair: the share of loading time that ToTensor takes, compared with 0.8. Loading is reading,
        decoding, ToTensor and collation, each stamped in the processes that load. Raw pixels from LMDB, without workers
        and with two, and PNG files, whose decoding comes on top. Beside it stands the gain of loading without the copy
        (.contiguous()). So does that of collating bytes and converting them once on the device (fast_collate; without a
        GPU in the training process). Pixels are equal to 1e-6.""",
        not_shown="""What lies outside the stamps: handing batches over, and waiting. Formats that are dearer to read,
        of whose loading the conversion is a smaller share still.""",
        figures="About 80 % of the loading time.",
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
        design="""A converts every value of a sample to floats in a Python loop, B the whole sample by NumPy. Both give
        the same numbers to 1e-6. Besides, ToTensor, which converts in PyTorch’s native code, must beat the loop. Raw
        pixels from LMDB, 16-pixel patches, without workers. NumPy against ToTensor stands beside it.""",
        not_shown="Other work than a conversion: how much a loop costs depends on what it does for each value.",
        by_construction=True,
        effect=change("collate", "loop", "numpy", _PATCHES),
        also=(Part("ToTensor", change("collate", "loop", "totensor", _PATCHES)),),
        asides={"from ToTensor to NumPy": change("collate", "totensor", "numpy", _PATCHES)},
    ),
)

SUITE = claims_suite("What does it cost to make a batch out of samples?", ("claims",), _CLAIMS)
