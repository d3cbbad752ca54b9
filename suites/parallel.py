"""What does it bring to train on several devices, and how?

One process that drives all devices (DataParallel) against one process a device (DistributedDataParallel), with
batches of one size on every device. Without a CUDA device two processes share the machine's cores, and exchange their
gradients over gloo. That shows the cost of the exchange, not the gain of a second device.

It does not show several machines: the suite `scaling` does.
"""

from __future__ import annotations

from feedrate.plan.claim import Claim, Values, change, pair
from feedrate.plan.suite import claims_suite
from feedrate.suites._cells import DEVICE, REAL

_ONE: Values = {"parallel": "ddp", "world_size": 1}
_TWO: Values = {"parallel": "ddp", "world_size": 2}

_CLAIMS = (
    Claim(
        id="ddp-over-dp",
        says="DistributedDataParallel is faster than DataParallel.",
        sources=("TIPS", "BOT"),
        design="""A drives two devices from one process (DataParallel), B from two (DistributedDataParallel, NCCL).
        Every device gets batches of 128 patches of 64 pixels. What two processes bring over one stands beside it.""",
        not_shown="More than two devices, where A has more to lose, and what of the gradients’ exchange is hidden.",
        needs="gpus",
        effect=pair({"parallel": "dp", "world_size": 2}, _TWO, DEVICE),
        asides={"from one process to two": pair(_ONE, _TWO, DEVICE)},
    ),
    Claim(
        id="ddp-scaling",
        says="Two processes of DistributedDataParallel train faster than one.",
        sources=("field",),
        design="""A trains in one process, B in two, each with batches of 32 of its own; gradients are averaged in every
        step. SRCNN on 16-pixel patches from PNG files. Without a CUDA device both share the same cores. So B can win
        only by using them better, and loses the cost of the exchange. Two cores leave it none to use.""",
        not_shown="A second device, unless the machine has one for each process.",
        least_cores=4,
        effect=pair(_ONE, _TWO, REAL),
    ),
    Claim(
        id="ddp-overlap",
        says="DistributedDataParallel is faster as it exchanges gradients while the backward pass still runs.",
        sources=("TIPS",),
        design="""A exchanges all gradients as one bucket, which is full when the backward pass has ended. B exchanges
        them in PyTorch's buckets of 25 MB, each as soon as it is full. Two processes train a perceptron of large
        layers, whose gradients are 46 MB, on batches of 32 patches of 16 pixels. Without a CUDA device both processes
        and the exchange share the same cores: with fewer than four nothing can be hidden.""",
        not_shown="Several machines, whose network is what there is to hide; devices, unless there are two.",
        least_cores=4,
        effect=change("ddp_buckets", "one", "many", {**REAL, **_TWO, "model": "mlp"}),
    ),
)

SUITE = claims_suite("What does it bring to train on several devices, and how?", ("claims", "timeline"), _CLAIMS)
