"""When does it pay to pin memory, and to copy while the device computes?

Batches travel from the host to a CUDA device. Memory is pageable or pinned. The host waits for the copy or not. The
copy starts when its step begins or one step ahead. A machine without such a device can test none of it.

It does not show several devices that share a bus. It does not show storage that reads into the device's memory by
itself.
"""

from __future__ import annotations

from feedrate.plan.claim import Claim, Part, change, pair
from feedrate.plan.suite import claims_suite
from feedrate.suites._cells import DEVICE, DEVICE_STEP

_PAGEABLE, _PINNED = {"pin_memory": False}, {"pin_memory": True}
_WAITS, _RETURNS = {"non_blocking": False}, {"non_blocking": True}
_TINY = {**DEVICE, "patch_size": 16}
_FEW = {"batch_size": 8}
_OVERLAP = {**DEVICE, **_PINNED, **_RETURNS}
_COPY = {"mode": "copy", "workload": "div2k"}
_SIZES = {"6 kB": (16, 1), "0.4 MB": (16, 64), "12.6 MB": (64, 128), "101 MB": (64, 1024)}
"""A batch's size, and the patch and batch size that make it."""
_CONTRADICTION = """No figure is given. BOT and TIPS contradict each other on pinned memory. TIPS would pin almost
always, and takes the overhead that is seen in GPU memory for pinned memory. BOT denies this. It warns that pinning much
memory hurts the host (claims pin-always, pin-danger, pinned-is-gpu-memory)."""
_SMALL_LARGE = "No figure is given. IO found pageable memory faster for patches of 16 pixels, and pinned memory for 64."


def _copies(name: str) -> dict[str, str | int]:
    patch_size, batch_size = _SIZES[name]
    return {**_COPY, "patch_size": patch_size, "batch_size": batch_size}


_CLAIMS = (
    Claim(
        id="pageable-small-input",
        says="For small images pageable memory is faster than pinned memory.",
        sources=("IO",),
        design="""A leaves batches in pageable memory, B pins them. Training has patches of 16 pixels, batches of 8 and
        of 128, and eight workers. If the sentence holds, B is slower. A thread of the training process pins the
        batches. Its cost does not shrink with the image. Its counterpart for larger images is pinned-large-input.""",
        not_shown="Batches that are copied without being used.",
        figures=_SMALL_LARGE,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, _TINY, {**_TINY, **_FEW}, says="less"),
    ),
    Claim(
        id="pinned-large-input",
        says="For larger images pinned memory is faster than pageable memory.",
        sources=("IO",),
        design="""A leaves batches in pageable memory, B pins them. Training has patches of 64 pixels, batches of 128,
        and eight workers. We also measure copies alone, from 6 kB to 101 MB. They show the size from which pinning
        speeds up the copy itself. The counterpart for small images is pageable-small-input.""",
        not_shown="The launch’s part of a small copy’s time: under some MB it is most of it.",
        figures=_SMALL_LARGE,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, DEVICE),
        asides={
            f"a copy of {name} alone": pair(_PAGEABLE, _PINNED, _copies(name), metric="copy_rate") for name in _SIZES
        },
    ),
    Claim(
        id="pin-danger",
        says="Pinning much memory hurts the host.",
        sources=("BOT",),
        design="""A leaves batches in pageable memory, B pins them. Each of eight workers prepares eight batches of 12.6
        MB ahead. We compare the memory that the host has left after the window. The host cannot reclaim pinned pages.
        We also measure throughput. Pinned blocks are rounded up to powers of two: at most 1.07 GB.""",
        not_shown="""A host that is short of memory. Where a host has more than 36 GB to spare, the rule calls 1.07 GB
        no difference. Batches that are not pinned take as much shared memory.""",
        figures=_CONTRADICTION,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, {**DEVICE, "prefetch_factor": 8}, metric="mem_available", says="less"),
        asides={"throughput": pair(_PAGEABLE, _PINNED, {**DEVICE, "prefetch_factor": 8})},
    ),
    Claim(
        id="pin-always",
        says="Pinning memory is almost always faster.",
        sources=("TIPS",),
        design="""A leaves batches in pageable memory, B pins them. Patches have 16 and 64 pixels, and batches have 8
        and 128 patches. We train with eight workers and without. “Almost always” speaks of these cases, and not of
        their mean. If one of them contradicts the sentence, the verdict is “depends”.""",
        not_shown="Inputs that are larger than a batch of images.",
        figures=_CONTRADICTION,
        needs="cuda",
        effect=pair(
            _PAGEABLE, _PINNED, DEVICE, {**DEVICE, **_FEW}, _TINY, {**_TINY, **_FEW}, {**DEVICE, "num_workers": 0}
        ),
    ),
    Claim(
        id="create-on-device",
        says="Making a tensor on the device is faster than making it on the host and moving it.",
        sources=("TIPS",),
        design="""Every step fills a tensor of the batch's shape with random numbers. A makes it on the host and moves
        it, B makes it on the device. The step runs alone on a resident batch of 128 patches of 64 pixels.""",
        not_shown="The copy alone: making random numbers costs a host much.",
        needs="cuda",
        effect=change("create_on", "host", "device", DEVICE_STEP),
    ),
    Claim(
        id="pinned-staging",
        says="Pinning saves the copy into a staging buffer that the driver makes of pageable memory.",
        sources=("API",),
        design="""A copies from pageable memory, B from pinned memory. Both copy 12.6 and 101 MB and do nothing else. We
        compare their rate by CUDA events. We also measure smaller copies, whose time is mostly their launch.""",
        not_shown="""The buffer itself, which nobody can see from outside. A copy twice as fast has saved one copy of
        its own length.""",
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, _copies("12.6 MB"), _copies("101 MB"), metric="copy_rate"),
        asides={
            f"a copy of {name}": pair(_PAGEABLE, _PINNED, _copies(name), metric="copy_rate")
            for name in ("6 kB", "0.4 MB")
        },
    ),
    Claim(
        id="nonblocking-needs-pin",
        says="Copying with non_blocking helps only from pinned memory.",
        sources=("API",),
        design="""A waits for each copy, B does not. From pinned memory B must be faster. From pageable memory B must
        make no difference, neither help nor harm. Training has patches of 64 pixels, batches of 128, and eight
        workers.""",
        not_shown="Copies back to the host, which may read a value before it has arrived.",
        needs="cuda",
        effect=pair(_WAITS, _RETURNS, {**DEVICE, **_PINNED}),
        also=(
            Part(
                "from pageable memory it changes nothing", pair(_WAITS, _RETURNS, {**DEVICE, **_PAGEABLE}, says="same")
            ),
        ),
    ),
    Claim(
        id="nonblocking-sync-points",
        says="Waiting for the device in every step, as loss.item() does, removes what non_blocking gains.",
        sources=("API",),
        design="""An interaction: A waits for each copy, B does not (non_blocking). We measure this effect on a step
        that never waits for the device. We divide it by the effect on a step that reads its loss. Above 1, the gain is
        smaller where the loss is read. Training from pinned memory has patches of 64 pixels, batches of 128, and eight
        workers.""",
        not_shown="That the whole gain is gone: the quotient says only that it is smaller.",
        needs="cuda",
        effect=pair(_WAITS, _RETURNS, {**DEVICE, **_PINNED}, against=[{**DEVICE, **_PINNED, "sync_every_step": True}]),
    ),
    Claim(
        id="overlap-chunks",
        says="Copies on a stream of their own overlap with computation.",
        sources=("API",),
        design="""A copies a batch when its step begins, B one step ahead on a second stream. Both have pinned memory,
        non_blocking, and batches of 128 patches of 64 pixels. We compare the exposed copy, which the computation had to
        wait for. We also measure throughput.""",
        not_shown="A copy that is longer than the step.",
        needs="cuda",
        effect=change("prefetcher", "none", "stream", _OVERLAP, metric="exposed_copy", says="less"),
        asides={"throughput": change("prefetcher", "none", "stream", _OVERLAP)},
    ),
    Claim(
        id="next-batch-transfer",
        says="Moving the next batch while this one is computed hides the copy.",
        sources=("AIDA",),
        design="""A moves a batch when its step begins. B moves the next batch while the device computes this one, on
        the same stream. Both move it from pageable memory and from pinned memory. We also measure a stream of its
        own.""",
        not_shown="Copies that run during kernels: on one stream B can hide only the host’s part of a copy.",
        needs="cuda",
        effect=change("prefetcher", "none", "next_batch", _OVERLAP, DEVICE),
        asides={"a stream of its own instead of the same": change("prefetcher", "next_batch", "stream", _OVERLAP)},
    ),
    Claim(
        id="launch-blocking",
        says="CUDA_LAUNCH_BLOCKING=1 destroys the overlap of host and device.",
        sources=("AIDA",),
        design="""A trains as usual. B sets the variable before CUDA starts, so every launch waits for its kernel. Both
        have pinned memory, non_blocking, and batches of 128 patches of 64 pixels. We compare throughput.""",
        not_shown="Kernels that take much longer than their launch: they lose little.",
        needs="cuda",
        effect=change("launch_blocking", False, True, _OVERLAP, says="less"),
    ),
    Claim(
        id="launch-blocking-prefetch",
        says="Under CUDA_LAUNCH_BLOCKING=1 moving the next batch ahead gains nothing.",
        sources=("AIDA",),
        design="""A moves a batch when its step begins. B moves the next batch while the device computes this one. It
        uses the same stream, as in the source. Both have the variable set, pinned memory, non_blocking, and batches of
        128 patches of 64 pixels.""",
        not_shown="The reason: every launch waits for its kernel, so nothing runs during a copy.",
        needs="cuda",
        effect=change("prefetcher", "none", "next_batch", {**_OVERLAP, "launch_blocking": True}, says="same"),
    ),
    Claim(
        id="pinned-is-gpu-memory",
        says="The overhead that is seen in GPU memory is pinned memory.",
        sources=("TIPS",),
        design="""A leaves batches in pageable memory, B pins them. We compare the memory in use on the whole device
        after the window. If pinned memory were part of it, B would use more. Training has patches of 64 pixels, batches
        of 128, and eight workers.""",
        not_shown="The memory of the driver’s context on either side.",
        figures=_CONTRADICTION,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, DEVICE, metric="gpu_mem_used"),
    ),
    Claim(
        id="d2h-sync",
        says="Copying outputs back to the host stalls the overlap of host and device.",
        sources=("API",),
        design="""A copies nothing back. B copies the step's output into pageable memory in every step, and the host
        waits for it. The step runs alone on a resident batch of 128 patches of 64 pixels. We also measure copies in
        every tenth step. We also measure copies into pinned memory, which the host need not wait for.""",
        not_shown="A checkpoint that is written to a file.",
        needs="cuda",
        effect=change("d2h", "none", "pageable", DEVICE_STEP, says="less"),
        asides={
            "every tenth step": pair({"d2h": "none"}, {"d2h": "pageable", "d2h_every": 10}, DEVICE_STEP, says="less"),
            "into pinned memory": change("d2h", "none", "pinned", DEVICE_STEP, says="less"),
        },
    ),
    Claim(
        id="pin-custom-batch",
        says="The DataLoader leaves batches of a class of one's own unpinned unless the class defines pin_memory().",
        sources=("API",),
        design="""A check: a DataLoader that pins gets batches as a tensor, a dictionary, a tuple, and your own class.
        That class has the method or lacks it. Then we ask every tensor whether it is pinned. No time is measured.""",
        not_shown="The cost of the unpinned batch.",
        needs="cuda",
        facts=({"check": "pin_custom"},),
    ),
)

SUITE = claims_suite(
    "When does it pay to pin memory, and to copy while the device computes?",
    ("claims", "transfer_size"),
    _CLAIMS,
    "16m",
)
