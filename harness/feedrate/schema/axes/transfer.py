"""Axes of moving tensors between host and device."""

from __future__ import annotations

from feedrate.schema.axes._axis import Axis, needs_model, on_cuda, one_of, only

TRANSFER: tuple[Axis, ...] = (
    Axis(
        "pin_memory",
        bool,
        False,
        "Whether batches are copied into page-locked host memory.",
        idle=on_cuda(only("mode", "train", "load", "copy")),
    ),
    Axis(
        "non_blocking",
        bool,
        False,
        "Whether the copy to the device returns before it is done.",
        idle=on_cuda(only("mode", "train", "copy")),
    ),
    Axis(
        "prefetcher",
        str,
        "none",
        "How the next batch is moved: when its step begins, one step ahead on the compute stream (next_batch), or one "
        "step ahead on a stream of its own.",
        choices=one_of("none", "next_batch", "stream"),
        idle=on_cuda(only("mode", "train")),
    ),
    Axis(
        "create_on",
        str,
        "none",
        "Where a tensor of the batch's shape is made in every step: not at all, on the host and then moved, or on the "
        "device.",
        choices=one_of("none", "host", "device"),
        idle=on_cuda(needs_model),
    ),
    Axis(
        "d2h",
        str,
        "none",
        "Whether the step's output is copied back to the host, into pageable or pinned memory.",
        choices=one_of("none", "pageable", "pinned"),
        idle=on_cuda(needs_model),
    ),
    Axis(
        "d2h_every",
        int,
        1,
        "Steps from one copy back to the next.",
        unit="steps",
        least=1,
        idle=only("d2h", "pageable", "pinned"),
    ),
    Axis(
        "launch_blocking",
        bool,
        False,
        "CUDA_LAUNCH_BLOCKING: whether every kernel launch waits for its kernel.",
        idle=on_cuda(only("mode", "train", "compute")),
    ),
)
