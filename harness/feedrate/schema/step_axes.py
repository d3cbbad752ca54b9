"""The axes of what happens to a batch behind the loader: its way to the device, and the training step."""

from __future__ import annotations

from feedrate.schema.axis import (
    NEEDS_MODEL,
    OF_A_SCRIPT,
    OF_IMAGES,
    all_of,
    any_of,
    condition,
    knob,
    model_has,
    named,
    on_cuda,
    one_of,
    only,
    setting,
)

TRANSFER = named(
    pin_memory=knob(
        False,
        "Whether batches are copied into page-locked host memory.",
        idle=on_cuda(only("mode", "train", "load", "copy")),
        of_scripts=True,
    ),
    non_blocking=knob(
        False,
        "Whether the copy to the device returns before it is done.",
        idle=on_cuda(only("mode", "train", "copy")),
        of_scripts=True,
    ),
    prefetcher=knob(
        "none",
        "When the next batch is moved. As its step begins, one step ahead on the compute stream (next_batch), or one "
        "step ahead on a stream of its own.",
        choices=one_of("none", "next_batch", "stream"),
        idle=on_cuda(only("mode", "train")),
    ),
    create_on=condition(
        "none",
        "Where every step makes a tensor of the batch's shape. Nowhere, on the host and then moved, or on the device.",
        choices=one_of("none", "host", "device"),
        idle=on_cuda(NEEDS_MODEL, OF_IMAGES),
    ),
    d2h=condition(
        "none",
        "Whether the step's output is copied back to the host, into pageable or pinned memory.",
        choices=one_of("none", "pageable", "pinned"),
        idle=on_cuda(NEEDS_MODEL),
    ),
    d2h_every=condition(
        1, "Steps from one copy back to the next.", unit="steps", least=1, idle=only("d2h", "pageable", "pinned")
    ),
    launch_blocking=setting(
        False,
        "CUDA_LAUNCH_BLOCKING: whether every kernel launch waits for its kernel.",
        idle=on_cuda(only("mode", "train", "compute")),
    ),
)
"""Moving tensors between host and device."""

TRAINING = named(
    norm=condition(
        "none",
        "Whether every convolution but the last is followed by a batch norm.",
        choices=one_of("none", "batch"),
        idle=all_of(NEEDS_MODEL, model_has("norm")),
    ),
    conv_bias=setting(True, "Whether convolutions before a batch norm have a bias.", idle=only("norm", "batch")),
    memory_format=setting(
        "contiguous",
        "Layout of images and of the model's weights.",
        choices=one_of("contiguous", "channels_last"),
        idle=all_of(NEEDS_MODEL, OF_IMAGES),
    ),
    amp=setting(
        "off",
        "Mixed precision (torch.amp.autocast): off, bfloat16, or float16.",
        choices=one_of("off", "bf16", "fp16"),
        idle=NEEDS_MODEL,
    ),
    grad_scaler=setting(
        False,
        "Whether the loss is scaled so that float16 gradients do not vanish (torch.amp.GradScaler).",
        idle=only("amp", "fp16"),
    ),
    fusion=setting(
        "eager",
        "How operations run. One by one (eager), pointwise ones by PyTorch's own fused function, through "
        "torch.compile or TorchScript, or as one CUDA graph (torch.compile's reduce-overhead).",
        choices=one_of("eager", "functional", "compile", "script", "cuda_graphs"),
        idle=NEEDS_MODEL,
    ),
    zero_grad=setting(
        "none",
        "How gradients are cleared: set to None, or overwritten with zeros (memset).",
        choices=one_of("none", "memset"),
        idle=NEEDS_MODEL,
    ),
    sync_every_step=condition(
        False,
        "Whether every step reads its loss (loss.item()), for which the host waits for the device.",
        idle=NEEDS_MODEL,
    ),
    debug=condition(
        "off",
        "Which of PyTorch's debugging aids runs in every step.",
        choices=one_of("off", "anomaly", "profiler", "nvtx", "gradcheck", "gradgradcheck"),
        idle=NEEDS_MODEL,
    ),
    cudnn_benchmark=setting(
        False,
        "Whether cuDNN times its algorithms for every new shape and keeps the fastest.",
        idle=on_cuda(NEEDS_MODEL),
    ),
    vary_shapes=condition(
        False, "Whether the size of the images changes from step to step.", idle=all_of(NEEDS_MODEL, OF_IMAGES)
    ),
    parallel=setting(
        "none",
        "How the model is replicated: not, by DataParallel, or by DistributedDataParallel (torchrun; gloo on CPUs, "
        "NCCL on GPUs).",
        choices=one_of("none", "dp", "ddp"),
        idle=all_of(only("mode", "train"), any_of(NEEDS_MODEL, OF_A_SCRIPT)),
        of_scripts=True,
    ),
    world_size=condition(
        1,
        "Replicas of the model: processes (ddp) or GPUs (dp); batch_size is each one's own.",
        least=1,
        idle=only("parallel", "dp", "ddp"),
        of_scripts=True,
    ),
    ddp_buckets=setting(
        "many",
        "How gradients are exchanged. In PyTorch's buckets of 25 MB, each when it is full (many). In one as large as "
        "the model, behind the backward pass (one). Or not at all, to see what the exchange costs.",
        choices=one_of("many", "one", "none"),
        idle=only("parallel", "ddp"),
    ),
    timing=condition(
        "events",
        "How the device's phases are timed: CUDA events, a synchronisation after every phase, or not at all (off).",
        choices=one_of("events", "serialized", "off"),
        idle=on_cuda(only("mode", "train", "compute", "copy")),
    ),
)
"""The training step."""
