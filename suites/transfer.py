"""When does it pay to pin memory, and to copy while the device computes?

Batches travel from the host to a CUDA device. Memory is pageable or pinned. The copy is waited for or not, when its
step begins or one step ahead. On a machine without such a device none of it can be tested.

It does not show several devices that share a bus, nor storage that reads into the device's memory by itself.
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
always, and takes the overhead that is seen in GPU memory for pinned memory. BOT says that it is not, and warns that
pinning much memory hurts the host (claims pin-always, pin-danger, pinned-is-gpu-memory)."""
_SMALL_LARGE = "No figure is given. IO found pageable memory faster for patches of 16 pixels, pinned memory for 64."


def _copies(name: str) -> dict[str, str | int]:
    patch_size, batch_size = _SIZES[name]
    return {**_COPY, "patch_size": patch_size, "batch_size": batch_size}


_CLAIMS = (
    Claim(
        id="pageable-small-input",
        says="For small images pageable memory is faster than pinned memory.",
        sources=("IO",),
        design="""A leaves batches in pageable memory, B pins them. Training has patches of 16 pixels, batches of 8 and
        of 128, and eight workers. B is said to be slower. Pinning is done by a thread of the training process, whose
        cost does not shrink with the image. Its counterpart for larger images is pinned-large-input.""",
        not_shown="Batches that are copied without being used.",
        figures=_SMALL_LARGE,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, _TINY, {**_TINY, **_FEW}, says="less"),
    ),
    Claim(
        id="pinned-large-input",
        says="For larger images pinned memory is faster than pageable memory.",
        sources=("IO",),
        design="""A leaves batches in pageable memory, B pins them; training on patches of 64 pixels, batches of 128,
        eight workers. Beside it stand copies alone, from 6 kB to 101 MB. They show the size from which on pinning
        speeds up the copy itself. Its counterpart for small images is pageable-small-input.""",
        not_shown="Which part of a small copy’s time is its launch: under some MB most of it is.",
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
        design="""A leaves batches in pageable memory, B pins them, eight workers that prepare eight batches of 12.6 MB
        each ahead. Compared is the memory that the host has left after the window, which pinned pages cannot be taken
        from. Throughput stands beside it. Pinned blocks are rounded up to powers of two: at most 1.07 GB.""",
        not_shown="""A host that is short of memory. Where more than 36 GB are to spare, 1.07 GB are no difference by
        the rule. Batches that are not pinned take as much shared memory.""",
        figures=_CONTRADICTION,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, {**DEVICE, "prefetch_factor": 8}, metric="mem_available", says="less"),
        asides={"throughput": pair(_PAGEABLE, _PINNED, {**DEVICE, "prefetch_factor": 8})},
    ),
    Claim(
        id="pin-always",
        says="Pinning memory is almost always faster.",
        sources=("TIPS",),
        design="""A leaves batches in pageable memory, B pins them. Patches have 16 and 64 pixels, batches 8 and 128,
        with eight workers and without. “Almost always” is a statement about these cases, and not about their mean:
        where one of them contradicts it, it depends.""",
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
        design="""In every step a tensor of the batch's shape is filled with random numbers. A makes it on the host and
        moves it, B makes it on the device. The step alone on a resident batch of 128 patches of 64 pixels.""",
        not_shown="The copy alone: random numbers are dear to make on a host.",
        needs="cuda",
        effect=change("create_on", "host", "device", DEVICE_STEP),
    ),
    Claim(
        id="pinned-staging",
        says="Pinning saves the copy into a staging buffer that the driver makes of pageable memory.",
        sources=("API",),
        design="""A copies from pageable memory, B from pinned memory, 12.6 and 101 MB and nothing else. Compared is
        their rate by CUDA events. Smaller copies stand beside it, whose time is mostly their launch.""",
        not_shown="""The buffer itself, which cannot be seen from outside: a copy twice as fast has saved one of its
        length.""",
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
        design="""A waits for each copy, B does not. It must help from pinned memory, and from pageable memory make no
        difference, neither help nor harm. Training on patches of 64 pixels, batches of 128, eight workers.""",
        not_shown="Copies back to the host, where a value may be read before it has arrived.",
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
        design="""An interaction: the effect of non_blocking on a step that never waits, divided by that on one that
        reads its loss. Above 1 the gain is smaller where the loss is read. Training from pinned memory on patches of 64
        pixels, batches of 128, eight workers.""",
        not_shown="That the whole gain is gone: the quotient tells that it is smaller.",
        needs="cuda",
        effect=pair(_WAITS, _RETURNS, {**DEVICE, **_PINNED}, against=[{**DEVICE, **_PINNED, "sync_every_step": True}]),
    ),
    Claim(
        id="overlap-chunks",
        says="Copies on a stream of their own overlap with computation.",
        sources=("API",),
        design="""A copies a batch when its step begins, B one step ahead on a second stream. Both have pinned memory,
        non_blocking, and batches of 128 patches of 64 pixels. Compared is the exposed copy, which the computation had
        to wait for; throughput stands beside it.""",
        not_shown="A copy that is longer than the step.",
        needs="cuda",
        effect=change("prefetcher", "none", "stream", _OVERLAP, metric="exposed_copy", says="less"),
        asides={"throughput": change("prefetcher", "none", "stream", _OVERLAP)},
    ),
    Claim(
        id="next-batch-transfer",
        says="Moving the next batch while this one is computed hides the copy.",
        sources=("AIDA",),
        design="""A moves a batch when its step begins. B moves the next one while this one is computed, on the same
        stream. Both move it from pageable memory and from pinned memory. A stream of its own stands beside it.""",
        not_shown="Copies that run beside kernels: on one stream only the host’s part of a copy can be hidden.",
        needs="cuda",
        effect=change("prefetcher", "none", "next_batch", _OVERLAP, DEVICE),
        asides={"a stream of its own instead of the same": change("prefetcher", "next_batch", "stream", _OVERLAP)},
    ),
    Claim(
        id="launch-blocking",
        says="CUDA_LAUNCH_BLOCKING=1 destroys the overlap of host and device.",
        sources=("AIDA",),
        design="""A trains as usual. B sets the variable before CUDA starts, so that every launch waits for its kernel.
        Both have pinned memory, non_blocking, and batches of 128 patches of 64 pixels. Compared is throughput.""",
        not_shown="Kernels that are long beside their launch, which lose little.",
        needs="cuda",
        effect=change("launch_blocking", False, True, _OVERLAP, says="less"),
    ),
    Claim(
        id="launch-blocking-prefetch",
        says="Under CUDA_LAUNCH_BLOCKING=1 moving the next batch ahead gains nothing.",
        sources=("AIDA",),
        design="""A moves a batch when its step begins. B moves the next one while this one is computed, on the same
        stream as in the source. Both have the variable set, pinned memory, non_blocking, and batches of 128 patches of
        64 pixels.""",
        not_shown="Why: every launch waits for its kernel, so that nothing runs beside a copy.",
        needs="cuda",
        effect=change("prefetcher", "none", "next_batch", {**_OVERLAP, "launch_blocking": True}, says="same"),
    ),
    Claim(
        id="pinned-is-gpu-memory",
        says="The overhead that is seen in GPU memory is pinned memory.",
        sources=("TIPS",),
        design="""A leaves batches in pageable memory, B pins them; compared is the memory in use on the whole device
        after the window. If pinned memory were part of it, B would use more. Training on patches of 64 pixels, batches
        of 128, eight workers.""",
        not_shown="What the driver’s context takes on either side.",
        figures=_CONTRADICTION,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, DEVICE, metric="gpu_mem_used"),
    ),
    Claim(
        id="d2h-sync",
        says="Copying outputs back to the host stalls the overlap of host and device.",
        sources=("API",),
        design="""A copies nothing back. B copies the step's output into pageable memory in every step, and the host
        waits for it. The step alone runs on a resident batch of 128 patches of 64 pixels. Every tenth step, and pinned
        memory, which need not be waited for, stand beside it.""",
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
        design="""A check. A DataLoader that pins gets batches as a tensor, a dictionary, a tuple, and a class of one's
        own. That class has the method or lacks it. Then every tensor is asked whether it is pinned. No time is
        measured.""",
        not_shown="What the unpinned batch costs.",
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
