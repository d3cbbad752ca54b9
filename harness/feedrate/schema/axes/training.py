"""Axes of the training step."""

from __future__ import annotations

from feedrate.schema.axes._axis import Axis, all_of, model_has, needs_model, on_cuda, one_of, only

TRAINING: tuple[Axis, ...] = (
    Axis(
        "norm",
        str,
        "none",
        "Whether every convolution but the last is followed by a batch norm.",
        choices=one_of("none", "batch"),
        idle=all_of(needs_model, model_has("norm")),
    ),
    Axis(
        "conv_bias",
        bool,
        True,
        "Whether convolutions before a batch norm have a bias.",
        idle=only("norm", "batch"),
    ),
    Axis(
        "memory_format",
        str,
        "contiguous",
        "Layout of images and of the model's weights.",
        choices=one_of("contiguous", "channels_last"),
        idle=needs_model,
    ),
    Axis(
        "amp",
        str,
        "off",
        "Mixed precision (torch.amp.autocast): off, bfloat16, or float16.",
        choices=one_of("off", "bf16", "fp16"),
        idle=needs_model,
    ),
    Axis(
        "grad_scaler",
        bool,
        False,
        "Whether the loss is scaled so that float16 gradients do not vanish (torch.amp.GradScaler).",
        idle=only("amp", "fp16"),
    ),
    Axis(
        "fusion",
        str,
        "eager",
        "How pointwise operations run: one by one, by PyTorch's own fused function, through torch.compile, or through "
        "TorchScript.",
        choices=one_of("eager", "functional", "compile", "script"),
        idle=needs_model,
    ),
    Axis(
        "zero_grad",
        str,
        "none",
        "How gradients are cleared: set to None, or overwritten with zeros (memset).",
        choices=one_of("none", "memset"),
        idle=needs_model,
    ),
    Axis(
        "sync_every_step",
        bool,
        False,
        "Whether every step reads its loss (loss.item()), for which the host waits for the device.",
        idle=needs_model,
    ),
    Axis(
        "debug",
        str,
        "off",
        "Which of PyTorch's debugging aids runs in every step.",
        choices=one_of("off", "anomaly", "profiler", "nvtx", "gradcheck", "gradgradcheck"),
        idle=needs_model,
    ),
    Axis(
        "cudnn_benchmark",
        bool,
        False,
        "Whether cuDNN times its algorithms for every new shape and keeps the fastest.",
        idle=on_cuda(needs_model),
    ),
    Axis(
        "vary_shapes",
        bool,
        False,
        "Whether the size of the images changes from step to step.",
        idle=needs_model,
    ),
    Axis(
        "parallel",
        str,
        "none",
        "How the model is replicated: not, by DataParallel, or by DistributedDataParallel (torchrun; gloo on CPUs, "
        "NCCL on GPUs).",
        choices=one_of("none", "dp", "ddp"),
        idle=all_of(only("mode", "train"), needs_model),
    ),
    Axis(
        "world_size",
        int,
        1,
        "Replicas of the model: processes (ddp) or GPUs (dp); batch_size is each one's own.",
        least=1,
        idle=only("parallel", "dp", "ddp"),
    ),
    Axis(
        "timing",
        str,
        "events",
        "How phases are timed: CUDA events, or a synchronisation after every phase.",
        choices=one_of("events", "serialized"),
        idle=on_cuda(only("mode", "train", "compute", "copy")),
    ),
)
