"""Which switches of the training step make it faster?

Most measurements run the step alone on one resident batch, so that no loader disturbs it. One-time work (compilation,
the choice of convolution algorithms, warm-up) is recorded apart.

It does not show what a switch does to what is learnt. On a CPU networks and images are small, so that a measurement
stays short. Such a step would leave a CUDA device idle, so larger ones decide there.
"""

from __future__ import annotations

from typing import Any

from feedrate.plan.claim import Claim, Part, change, level, slope
from feedrate.plan.suite import claims_suite
from feedrate.suites._cells import DEVICE, DEVICE_STEP, REAL, STEP

_FEW = {**STEP, "batch_size": 8}
_LINEAR = {**STEP, "model": "mlp"}
_POINTWISE = {**STEP, "model": "pointwise"}
_TINY: dict[str, Any] = {**STEP, "batch_size": 1, "patch_size": 4}
"""Small enough to compare its gradients with differences, element by element."""
_NORMED = {**STEP, "norm": "batch"}
_DEVICE_NORMED = {**DEVICE_STEP, "norm": "batch"}
_READ = {"sync_every_step": True}
_DEVICE_LINEAR = {**DEVICE_STEP, "model": "mlp"}
_DEVICE_POINTWISE = {**DEVICE_STEP, "model": "pointwise"}
_DEVICE_BF16 = {**DEVICE_STEP, "amp": "bf16"}
_PINNED = {**DEVICE, "pin_memory": True, "non_blocking": True}
_ON_CUDA = "On a CUDA device 64-pixel patches in batches of 128 decide."
_SOURCE = {**REAL, "num_workers": 16}
_MEMORY = """873 to 1238 MiB for batches of 8 to 128. What of it does not grow, TIPS takes for pinned memory, and BOT
does not (pinned-is-gpu-memory)."""
_GROWING = (32, 128, 512)

_CLAIMS = (
    Claim(
        id="cudnn-benchmark",
        says="Letting cuDNN time its algorithms and keep the fastest makes convolutions faster.",
        sources=("TIPS",),
        design="""A takes the choice of cuDNN's heuristics, B that of its autotuner. SRCNN runs alone on a resident
        batch of 128 patches of 64 pixels. The search happens during the warm-up. Images whose size changes from step to
        step stand beside it: every new size is searched for once.""",
        not_shown="What the search itself costs a short training.",
        needs="cuda",
        effect=change("cudnn_benchmark", False, True, DEVICE_STEP),
        asides={"sizes that change": change("cudnn_benchmark", False, True, {**DEVICE_STEP, "vary_shapes": True})},
    ),
    Claim(
        id="amp",
        says="Computing in bfloat16 where autocast allows it is faster.",
        sources=("field",),
        design=f"""A computes in float32, which is PyTorch's default, with convolutions in TF32 on GPUs that have it. B
        computes in bfloat16 where autocast allows it. SRCNN and a perceptron of large layers, alone on a resident batch
        of 16-pixel patches. {_ON_CUDA} Float16 stands beside it.""",
        not_shown="""CPUs whose instructions know bfloat16, unless this is one; what lower precision does to what is
        learnt.""",
        effect=change("amp", "off", "bf16", STEP, _LINEAR),
        on_cuda=change("amp", "off", "bf16", DEVICE_STEP, _DEVICE_LINEAR),
        asides={"in float16": change("amp", "off", "fp16", DEVICE_STEP, needs="cuda")},
    ),
    Claim(
        id="amp-memory",
        says="Mixed precision takes less memory of the device.",
        sources=("TIPS",),
        design="""A computes in float32, B in bfloat16 where autocast allows it; compared is the peak of memory in
        tensors. SRCNN and a perceptron of large layers, alone on a resident batch of 128 patches of 64 pixels.""",
        not_shown="The larger batch that fits then.",
        needs="cuda",
        effect=change("amp", "off", "bf16", DEVICE_STEP, _DEVICE_LINEAR, metric="gpu_mem_peak", says="less"),
    ),
    Claim(
        id="bias-before-norm",
        says="Convolutions that are followed by a batch norm are faster without a bias.",
        sources=("TIPS",),
        design=f"""A keeps the bias of the convolutions before a batch norm, B drops it. The norm takes the mean off, so
        that both compute the same. SRCNN with batch norms, alone on a resident batch, batches of 8 and of 32 of
        16-pixel patches. {_ON_CUDA}""",
        not_shown="Deeper networks, which have more such pairs, and more to gain.",
        effect=change("conv_bias", True, False, _NORMED, {**_NORMED, "batch_size": 8}),
        on_cuda=change("conv_bias", True, False, _DEVICE_NORMED),
    ),
    Claim(
        id="grad-none",
        says="Setting gradients to None is faster than overwriting them with zeros.",
        sources=("TIPS",),
        design=f"""A clears gradients with zeros. B drops them, which is PyTorch's default by now. Weights are the same
        bit by bit after any number of steps. A perceptron of large layers has gradients of 46 MB, and runs with batches
        of 8 and of 32. SRCNN has small gradients. The step alone, on a resident batch. {_ON_CUDA}""",
        not_shown="The memory that gradients take while they are None.",
        effect=change("zero_grad", "memset", "none", _LINEAR, {**_LINEAR, "batch_size": 8}, STEP),
        on_cuda=change("zero_grad", "memset", "none", _DEVICE_LINEAR, DEVICE_STEP),
    ),
    Claim(
        id="debug-apis",
        says="PyTorch's debugging aids slow training: anomaly detection, the profiler, NVTX ranges, gradient checks.",
        sources=("TIPS",),
        design=f"""A trains without, B with anomaly detection, which also looks for NaN in every gradient. SRCNN runs
        alone on a resident batch of 32 patches of 16 pixels. Each of the other aids must slow it, too. They are the
        profiler in the same step, NVTX ranges on a CUDA device and both gradient checks. The checks compute the loss
        anew for every number of the input, in every step on one 4-pixel patch. {_ON_CUDA}""",
        not_shown="Larger networks, of whose operations an aid’s cost is a smaller part.",
        effect=change("debug", "off", "anomaly", STEP, says="less"),
        on_cuda=change("debug", "off", "anomaly", DEVICE_STEP, says="less"),
        also=(
            Part("the profiler slows it", change("debug", "off", "profiler", STEP, says="less"), device="cpu"),
            Part("the profiler slows it", change("debug", "off", "profiler", DEVICE_STEP, says="less"), device="cuda"),
            Part("NVTX ranges slow it", change("debug", "off", "nvtx", DEVICE_STEP, says="less"), device="cuda"),
            Part("a gradient check slows it", change("debug", "off", "gradcheck", _TINY, says="less")),
            Part("a check of second gradients slows it", change("debug", "off", "gradgradcheck", _TINY, says="less")),
        ),
    ),
    Claim(
        id="fuse-pointwise",
        says="Fusing pointwise operations makes them faster, as it saves launches and memory traffic.",
        sources=("TIPS", "BOT"),
        design="""A computes a chain of GELUs operation by operation, B fused; the same numbers within rounding. On a
        CUDA device TorchScript fuses them, as in the source, with 64-pixel patches in batches of 128. On a CPU it fuses
        nothing by default; there torch.compile does, which has replaced it. PyTorch's own fused GELU stands beside
        it.""",
        not_shown="""The launches and the memory traffic: throughput alone is compared. What compiling costs: it happens
        before the warm-up, and is a column of its own.""",
        effect=change("fusion", "eager", "compile", _POINTWISE),
        on_cuda=change("fusion", "eager", "script", _DEVICE_POINTWISE),
        asides={
            "PyTorch's own GELU": change("fusion", "eager", "functional", _POINTWISE),
            "compiled against PyTorch's own": change("fusion", "functional", "compile", _POINTWISE),
            "torch.compile": change("fusion", "eager", "compile", _DEVICE_POINTWISE, needs="cuda"),
        },
    ),
    Claim(
        id="jit-script",
        says="TorchScript speeds up training.",
        sources=("TIPS",),
        design=f"""A runs the network as written, B through torch.jit.script. It can fuse a chain of GELUs, and finds
        little to fuse in SRCNN. Both run alone on a resident batch. {_ON_CUDA}""",
        not_shown="PyTorch and Python versions that have TorchScript no more: it is deprecated for torch.compile.",
        effect=change("fusion", "eager", "script", _POINTWISE, _FEW),
        on_cuda=change("fusion", "eager", "script", _DEVICE_POINTWISE, DEVICE_STEP),
    ),
    Claim(
        id="larger-batch-tuning",
        says="The gradient work for a sample falls as the batch grows to fill the device's memory.",
        sources=("field",),
        design="""The step alone runs on a resident batch of 32 to 512 patches of 64 pixels. The backward pass of a
        sample on the device is fitted over the batch size. Throughput and peak memory stand beside it.""",
        not_shown="What larger batches do to what is learnt.",
        needs="cuda",
        effect=slope("batch_size", _GROWING, DEVICE_STEP, metric="device_backward", says="less"),
        asides={
            "throughput": slope("batch_size", _GROWING, DEVICE_STEP),
            "peak memory of the device": slope("batch_size", _GROWING, DEVICE_STEP, metric="gpu_mem_peak"),
        },
    ),
    Claim(
        id="loss-item",
        says="Reading the loss in every step costs throughput, as the host waits for the device.",
        sources=("field",),
        design="""A never reads the loss, B reads it in every step, for which the host waits for the device. Three
        networks run alone on a resident batch of 128 patches of 64 pixels. They are SRCNN, a perceptron of large layers
        and a chain of pointwise operations.""",
        not_shown="A CPU, where there is nothing to wait for; copies that overlap (nonblocking-sync-points).",
        needs="cuda",
        effect=change("sync_every_step", False, True, DEVICE_STEP, _DEVICE_LINEAR, _DEVICE_POINTWISE, says="less"),
        asides={
            "training on 64-pixel patches from pinned memory": change(
                "sync_every_step", False, True, _PINNED, says="less"
            )
        },
    ),
    Claim(
        id="memory-by-batch",
        says="GPU memory grows mildly with the batch.",
        sources=("IO",),
        design="""A trains on batches of 8, B of 128. Compared is the memory in use on the whole device after the
        window, as the source read it. It includes the context and whatever the libraries keep. Mildly is at most as the
        source's 1238 ÷ 873 MiB; besides, it must grow at all. What tensors need at their peak and what PyTorch reserves
        stand beside it.""",
        not_shown="Which part of it is the context’s, which does not grow.",
        figures=_MEMORY,
        needs="cuda",
        effect=change("batch_size", 8, 128, _SOURCE, metric="gpu_mem_used", says="less", figure=1238 / 873),
        also=(Part("it grows", change("batch_size", 8, 128, _SOURCE, metric="gpu_mem_used")),),
        asides={
            "peak in tensors": change("batch_size", 8, 128, _SOURCE, metric="gpu_mem_peak"),
            "reserved by PyTorch": change("batch_size", 8, 128, _SOURCE, metric="gpu_mem_reserved"),
            "in use, 64-pixel patches": change(
                "batch_size", 8, 128, {**_SOURCE, "patch_size": 64}, metric="gpu_mem_used"
            ),
        },
    ),
    Claim(
        id="fp16-loss-scaling",
        says="Loss scaling costs little throughput.",
        sources=("field",),
        design="""A trains in float16 without, B with a GradScaler; SRCNN alone on a resident batch, patches of 64
        pixels, batches of 128. Little is less than 3 %.""",
        not_shown="That it is needed: gradients that vanish without it leave no trace in a step’s time.",
        figures="BOT names loss scaling beside float16, and says nothing of its cost.",
        needs="cuda",
        effect=change("grad_scaler", False, True, {**DEVICE_STEP, "amp": "fp16"}, says="same"),
    ),
    Claim(
        id="batchnorm-sync",
        says="A batch norm makes the host wait for the device.",
        sources=("API",),
        design="""No pair: the host's time in the forward pass of SRCNN with batch norms, as a share of the forward pass
        on the device. A host that waits for the last norms takes about as long as the device, so the share is compared
        with 1. A host that only launches is far ahead of it. Every step ends with reading the loss, so that no step
        begins behind a full queue of launches. The same without norms stands beside it.""",
        not_shown="Norms that are synchronised over several devices.",
        needs="cuda",
        effect=level("forward_on_host", {**_DEVICE_NORMED, **_READ}, figure=1.0),
        asides={"without norms": level("forward_on_host", {**DEVICE_STEP, **_READ}, figure=1.0)},
    ),
    Claim(
        id="channels-last",
        says="Storing images with their channels last makes convolutions faster.",
        sources=("field",),
        design=f"""A keeps images and weights in PyTorch's usual layout, B with channels last; the same numbers within
        rounding. SRCNN runs alone on a resident batch of 8 and of 32 patches of 16 pixels. Mixed precision, for which
        accelerators want the layout, stands beside it. {_ON_CUDA}""",
        not_shown="Networks of many channels, which the layout is made for.",
        effect=change("memory_format", "contiguous", "channels_last", STEP, _FEW),
        on_cuda=change("memory_format", "contiguous", "channels_last", DEVICE_STEP),
        asides={
            "with bfloat16": change("memory_format", "contiguous", "channels_last", {**STEP, "amp": "bf16"}),
            "with bfloat16, 64-pixel patches": change(
                "memory_format", "contiguous", "channels_last", _DEVICE_BF16, needs="cuda"
            ),
        },
    ),
)

SUITE = claims_suite("Which switches of the training step make it faster?", ("claims", "timeline"), _CLAIMS, "18m")
