"""What does it bring to train on several devices, and how?

We compare two ways. DataParallel drives all devices from one process. DistributedDataParallel has one process a device.
Every device gets batches of one size. Without a CUDA device two processes share the machine's cores. They exchange
their gradients over gloo. That shows the cost of the exchange, not the gain of a second device.

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
        design="""A drives two devices from one process (DataParallel). B drives them from two (DistributedDataParallel,
        NCCL). Every device gets batches of 128 patches of 64 pixels. We also measure the gain of two processes over
        one.""",
        not_shown="""More than two devices, where A has more to lose. The part of the gradients’ exchange that is
        hidden.""",
        needs="gpus",
        effect=pair({"parallel": "dp", "world_size": 2}, _TWO, DEVICE),
        asides={"from one process to two": pair(_ONE, _TWO, DEVICE)},
    ),
    Claim(
        id="ddp-scaling",
        says="Two processes of DistributedDataParallel train faster than one.",
        sources=("field",),
        design="""A trains in one process, B in two. Each process has batches of 32 of its own. They average their
        gradients in every step. SRCNN trains on 16-pixel patches from PNG files. Without a CUDA device both processes
        of B share the same cores. So B can win only by using the cores better, and it pays for the exchange. On two
        cores B has no spare core to use.""",
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
        layers, whose gradients are 46 MB. Batches have 32 patches of 16 pixels. Without a CUDA device both processes
        and the exchange share the same cores. With fewer than four cores B can hide nothing.""",
        not_shown="Several machines, whose network takes the time to hide. Devices, unless there are two.",
        least_cores=4,
        effect=change("ddp_buckets", "one", "many", {**REAL, **_TWO, "model": "mlp"}),
    ),
)

SUITE = claims_suite("What does it bring to train on several devices, and how?", ("claims", "timeline"), _CLAIMS)
