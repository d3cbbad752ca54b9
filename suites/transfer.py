"""When does it pay to pin memory, and to copy while the device computes?

Batches travel from the host to a CUDA device: from pageable or pinned memory, waited for or not, when their step
begins or one step ahead. On a machine without such a device none of it can be tested.

It does not show several devices that share a bus, nor storage that reads into the device's memory by itself.
"""

from __future__ import annotations

from feedrate.plan.claim import Aside, Claim, change, pair
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
_CONTRADICTION = (
    "No figure is given. BOT and TIPS contradict each other on pinned memory: TIPS would pin almost always, and takes "
    "the overhead that is seen in GPU memory for pinned memory; BOT says that it is not, and warns that pinning much "
    "memory hurts the host (claims pin-always, pin-danger, pinned-is-gpu-memory)."
)
_SMALL_LARGE = "No figure is given. IO found pageable memory faster for patches of 16 pixels, pinned memory for 64."


def _copies(name: str) -> dict[str, str | int]:
    patch_size, batch_size = _SIZES[name]
    return {**_COPY, "patch_size": patch_size, "batch_size": batch_size}


_CLAIMS = (
    Claim(
        id="pageable-small-input",
        says="For small images pageable memory is faster than pinned memory.",
        sources=("IO",),
        design=(
            "A leaves batches in pageable memory, B pins them; training on patches of 16 pixels, batches of 8 and of "
            "128, eight workers. B is said to be slower. Pinning is done by a thread of the training process, whose "
            "cost does not shrink with the image. Its counterpart for larger images is pinned-large-input."
        ),
        figures=_SMALL_LARGE,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, _TINY, {**_TINY, **_FEW}, says="less"),
    ),
    Claim(
        id="pinned-large-input",
        says="For larger images pinned memory is faster than pageable memory.",
        sources=("IO",),
        design=(
            "A leaves batches in pageable memory, B pins them; training on patches of 64 pixels, batches of 128, eight "
            "workers. Beside it stand copies alone, from 6 kB to 101 MB, which show from which size on pinning speeds "
            "up the copy itself: launch and wait are part of its time, and most of it at sizes under some MB. Its "
            "counterpart for small images is pageable-small-input."
        ),
        figures=_SMALL_LARGE,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, DEVICE),
        asides=tuple(
            Aside(f"a copy of {name} alone", pair(_PAGEABLE, _PINNED, _copies(name), metric="copy_rate"))
            for name in _SIZES
        ),
    ),
    Claim(
        id="pin-danger",
        says="Pinning much memory hurts the host.",
        sources=("BOT",),
        design=(
            "A leaves batches in pageable memory, B pins them, eight workers that prepare eight batches of 12.6 MB "
            "each ahead. Compared is the memory that the host has left after the window, which pinned pages cannot be "
            "taken from; throughput stands beside it. At most 0.8 GB are pinned, which a host with more than 27 GB to "
            "spare cannot tell from no difference, and batches that are not pinned take as much shared memory. It does "
            "not show a host that is short of memory already."
        ),
        figures=_CONTRADICTION,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, {**DEVICE, "prefetch_factor": 8}, metric="mem_available", says="less"),
        asides=(Aside("throughput", pair(_PAGEABLE, _PINNED, {**DEVICE, "prefetch_factor": 8})),),
    ),
    Claim(
        id="pin-always",
        says="Pinning memory is almost always faster.",
        sources=("TIPS",),
        design=(
            "A leaves batches in pageable memory, B pins them; patches of 16 and of 64 pixels, batches of 8 and of "
            "128, with eight workers and without. The cases in which B is faster are counted: “almost always” is a "
            "statement about them, and not about their mean, which decides the verdict."
        ),
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
        design=(
            "In every step a tensor of the batch's shape is filled with random numbers: A makes it on the host and "
            "moves it, B on the device. The step alone on a resident batch of 128 patches of 64 pixels. Beside random "
            "numbers, which are dear on a host, a tensor of constants would show the copy alone."
        ),
        needs="cuda",
        effect=change("create_on", "host", "device", DEVICE_STEP),
    ),
    Claim(
        id="pinned-staging",
        says="Pinning saves the copy into a staging buffer that the driver makes of pageable memory.",
        sources=("API",),
        design=(
            "A copies from pageable memory, B from pinned memory, 12.6 and 101 MB and nothing else; compared is their "
            "rate by CUDA events. Smaller copies stand beside it, whose time is mostly their launch. A copy that is "
            "twice as fast has saved another of its length; the buffer itself cannot be seen from outside."
        ),
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, _copies("12.6 MB"), _copies("101 MB"), metric="copy_rate"),
        asides=tuple(
            Aside(f"a copy of {name}", pair(_PAGEABLE, _PINNED, _copies(name), metric="copy_rate"))
            for name in ("6 kB", "0.4 MB")
        ),
    ),
    Claim(
        id="nonblocking-needs-pin",
        says="Copying with non_blocking helps only from pinned memory.",
        sources=("API",),
        design=(
            "An interaction: what non_blocking does for pinned batches, divided by what it does for pageable ones; "
            "above 1 it does more for pinned ones. Training on patches of 64 pixels, batches of 128, eight workers. "
            "Either half stands beside it."
        ),
        needs="cuda",
        effect=pair(_WAITS, _RETURNS, {**DEVICE, **_PINNED}, against=[{**DEVICE, **_PAGEABLE}]),
        asides=(
            Aside("from pinned memory", pair(_WAITS, _RETURNS, {**DEVICE, **_PINNED})),
            Aside("from pageable memory", pair(_WAITS, _RETURNS, {**DEVICE, **_PAGEABLE})),
        ),
    ),
    Claim(
        id="nonblocking-sync-points",
        says="Waiting for the device in every step, as loss.item() does, removes what non_blocking gains.",
        sources=("API",),
        design=(
            "An interaction: what non_blocking does for a step that never waits, divided by what it does for one that "
            "reads its loss; above 1 the gain is smaller where the loss is read. Training from pinned memory on "
            "patches of 64 pixels, batches of 128, eight workers."
        ),
        needs="cuda",
        effect=pair(_WAITS, _RETURNS, {**DEVICE, **_PINNED}, against=[{**DEVICE, **_PINNED, "sync_every_step": True}]),
    ),
    Claim(
        id="overlap-chunks",
        says="Copies on a stream of their own overlap with computation.",
        sources=("API",),
        design=(
            "A copies a batch when its step begins, B one step ahead on a second stream; pinned memory, non_blocking, "
            "patches of 64 pixels, batches of 128. Compared is the exposed copy, which the computation had to wait "
            "for; throughput stands beside it. It does not show a copy that is longer than the step."
        ),
        needs="cuda",
        effect=change("prefetcher", "none", "stream", _OVERLAP, metric="exposed_copy", says="less"),
        asides=(Aside("throughput", change("prefetcher", "none", "stream", _OVERLAP)),),
    ),
    Claim(
        id="next-batch-transfer",
        says="Moving the next batch while this one is computed hides the copy.",
        sources=("AIDA",),
        design=(
            "A moves a batch when its step begins, B the next one while this one is computed, on the same stream; from "
            "pageable memory and from pinned memory. A stream of its own stands beside it. On one stream a copy still "
            "runs before or after the kernels: what can be hidden is the host's part."
        ),
        needs="cuda",
        effect=change("prefetcher", "none", "next_batch", _OVERLAP, DEVICE),
        asides=(
            Aside("a stream of its own instead of the same", change("prefetcher", "next_batch", "stream", _OVERLAP)),
        ),
    ),
    Claim(
        id="launch-blocking",
        says="CUDA_LAUNCH_BLOCKING=1 destroys the overlap of host and device.",
        sources=("AIDA",),
        design=(
            "A trains as usual, B with the variable set before CUDA starts, so that every launch waits for its kernel; "
            "pinned memory, non_blocking, patches of 64 pixels, batches of 128. Compared is throughput. Kernels that "
            "are long beside their launch lose little."
        ),
        needs="cuda",
        effect=change("launch_blocking", False, True, _OVERLAP, says="less"),
    ),
    Claim(
        id="pinned-is-gpu-memory",
        says="The overhead that is seen in GPU memory is pinned memory.",
        sources=("TIPS",),
        design=(
            "A leaves batches in pageable memory, B pins them; compared is the memory in use on the whole device after "
            "the window. If pinned memory were part of it, B would use more. Training on patches of 64 pixels, batches "
            "of 128, eight workers."
        ),
        figures=_CONTRADICTION,
        needs="cuda",
        effect=pair(_PAGEABLE, _PINNED, DEVICE, metric="gpu_mem_used"),
    ),
    Claim(
        id="d2h-sync",
        says="Copying outputs back to the host stalls the overlap of host and device.",
        sources=("API",),
        design=(
            "A copies nothing back, B the step's output into pageable memory in every step, for which the host waits; "
            "the step alone on a resident batch of 128 patches of 64 pixels. Every tenth step, and pinned memory, "
            "which need not be waited for, stand beside it."
        ),
        needs="cuda",
        effect=change("d2h", "none", "pageable", DEVICE_STEP, says="less"),
        asides=(
            Aside(
                "every tenth step",
                pair({"d2h": "none"}, {"d2h": "pageable", "d2h_every": 10}, DEVICE_STEP, says="less"),
            ),
            Aside("into pinned memory", change("d2h", "none", "pinned", DEVICE_STEP, says="less")),
        ),
    ),
    Claim(
        id="pin-custom-batch",
        says="The DataLoader leaves batches of a class of one's own unpinned unless the class defines pin_memory().",
        sources=("API",),
        design=(
            "A check: batches as a tensor, a dictionary, a tuple, and a class of one's own without and with the "
            "method, through a DataLoader that pins; then every tensor is asked whether it is pinned. No time is "
            "measured."
        ),
        needs="cuda",
        facts=({"check": "pin_custom"},),
    ),
)

SUITE = claims_suite(
    "When does it pay to pin memory, and to copy while the device computes?", ("claims", "transfer_size"), _CLAIMS
)
