"""Which switches of the training step make it faster?

Most measurements run the step alone on one resident batch, so no loader disturbs it. We record one-time work apart:
compilation, the choice of convolution algorithms, warm-up.

It does not show the effect of a switch on learning. On a CPU networks and images are small, so a measurement stays
short. Such a step would leave a CUDA device idle, so larger steps decide there.
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
_MEMORY = """873 to 1238 MiB for batches of 8 to 128. TIPS takes the constant part for pinned memory; BOT disagrees
(pinned-is-gpu-memory)."""
_GROWING = (32, 128, 512)

_CLAIMS = (
    Claim(
        id="cudnn-benchmark",
        says="Letting cuDNN time its algorithms and keep the fastest makes convolutions faster.",
        sources=("TIPS",),
        design="""A takes the choice of cuDNN's heuristics, B the choice of its autotuner. SRCNN runs alone on a
        resident batch of 128 patches of 64 pixels. The search happens during the warm-up. We also measure images whose
        size changes from step to step. The autotuner then searches once for every new size.""",
        not_shown="The cost of the search itself in a short training.",
        needs="cuda",
        effect=change("cudnn_benchmark", False, True, DEVICE_STEP),
        asides={"sizes that change": change("cudnn_benchmark", False, True, {**DEVICE_STEP, "vary_shapes": True})},
    ),
    Claim(
        id="amp",
        says="Computing in bfloat16 where autocast allows it is faster.",
        sources=("field",),
        design=f"""A computes in float32, PyTorch's default. Its convolutions use TF32 on GPUs that have it. B computes
        in bfloat16 where autocast allows it. SRCNN and a perceptron of large layers run alone on a resident batch of
        16-pixel patches. {_ON_CUDA} We also measure float16.""",
        not_shown="CPUs with instructions for bfloat16, unless this is one. The effect of lower precision on learning.",
        effect=change("amp", "off", "bf16", STEP, _LINEAR),
        on_cuda=change("amp", "off", "bf16", DEVICE_STEP, _DEVICE_LINEAR),
        asides={"in float16": change("amp", "off", "fp16", DEVICE_STEP, needs="cuda")},
    ),
    Claim(
        id="amp-memory",
        says="Mixed precision takes less memory of the device.",
        sources=("TIPS",),
        design="""A computes in float32, B in bfloat16 where autocast allows it. We compare the peak of memory in
        tensors. SRCNN and a perceptron of large layers run alone on a resident batch of 128 patches of 64 pixels.""",
        not_shown="The larger batch that then fits.",
        needs="cuda",
        effect=change("amp", "off", "bf16", DEVICE_STEP, _DEVICE_LINEAR, metric="gpu_mem_peak", says="less"),
    ),
    Claim(
        id="bias-before-norm",
        says="Convolutions that are followed by a batch norm are faster without a bias.",
        sources=("TIPS",),
        design=f"""A keeps the bias of the convolutions before a batch norm, B drops it. The norm subtracts the mean, so
        both compute the same. SRCNN with batch norms runs alone on a resident batch. Batches have 8 and 32 patches of
        16 pixels. {_ON_CUDA}""",
        not_shown="Deeper networks, which have more such pairs, and more to gain.",
        effect=change("conv_bias", True, False, _NORMED, {**_NORMED, "batch_size": 8}),
        on_cuda=change("conv_bias", True, False, _DEVICE_NORMED),
    ),
    Claim(
        id="grad-none",
        says="Setting gradients to None is faster than overwriting them with zeros.",
        sources=("TIPS",),
        design=f"""A clears gradients with zeros. B drops them, which is now PyTorch's default. Weights are the same bit
        by bit after any number of steps. A perceptron of large layers has gradients of 46 MB. It runs with batches of 8
        and of 32. SRCNN has small gradients. The step runs alone on a resident batch. {_ON_CUDA}""",
        not_shown="The memory that gradients take while they are None.",
        effect=change("zero_grad", "memset", "none", _LINEAR, {**_LINEAR, "batch_size": 8}, STEP),
        on_cuda=change("zero_grad", "memset", "none", _DEVICE_LINEAR, DEVICE_STEP),
    ),
    Claim(
        id="debug-apis",
        says="PyTorch's debugging aids slow training: anomaly detection, the profiler, NVTX ranges, gradient checks.",
        sources=("TIPS",),
        design=f"""A trains without anomaly detection, B with it. It also looks for NaN in every gradient. SRCNN runs
        alone on a resident batch of 32 patches of 16 pixels. Each of the other aids must slow it, too. They are the
        profiler in the same step, NVTX ranges on a CUDA device and both gradient checks. The checks run in every step
        on one 4-pixel patch. They compute the loss anew for every number of the input. {_ON_CUDA}""",
        not_shown="Larger networks: there an aid costs a smaller part of an operation’s time.",
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
        design="""A computes a chain of GELUs operation by operation, B fuses them. Both give the same numbers within
        rounding. On a CUDA device TorchScript fuses them, as in the source. There batches have 128 patches of 64
        pixels. On a CPU TorchScript fuses nothing by default. There torch.compile, which has replaced it, fuses them.
        We also measure PyTorch's own fused GELU.""",
        not_shown="""The launches and the memory traffic: we compare only throughput. The cost of compiling: it happens
        before the warm-up, and has a column of its own.""",
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
        design=f"""A runs the network as written, B through torch.jit.script. TorchScript can fuse a chain of GELUs, and
        finds little to fuse in SRCNN. Both networks run alone on a resident batch. {_ON_CUDA}""",
        not_shown="Versions of PyTorch and Python without TorchScript, which is deprecated for torch.compile.",
        effect=change("fusion", "eager", "script", _POINTWISE, _FEW),
        on_cuda=change("fusion", "eager", "script", _DEVICE_POINTWISE, DEVICE_STEP),
    ),
    Claim(
        id="larger-batch-tuning",
        says="The gradient work for a sample falls as the batch grows to fill the device's memory.",
        sources=("field",),
        design="""The step runs alone on a resident batch of 32 to 512 patches of 64 pixels. We fit the backward pass of
        a sample on the device over the batch size. We also measure throughput and peak memory.""",
        not_shown="The effect of larger batches on learning.",
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
        design="""A never reads the loss. B reads it in every step, and the host waits for the device. Three networks
        run alone on a resident batch of 128 patches of 64 pixels. They are SRCNN, a perceptron of large layers and a
        chain of pointwise operations.""",
        not_shown="A CPU, where the host waits for nothing. Copies that overlap (nonblocking-sync-points).",
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
        design="""A trains on batches of 8, B on batches of 128. We compare the memory in use on the whole device after
        the window, as the source read it. It includes the context and the memory that the libraries keep. “Mildly”
        means at most the source’s 1238 ÷ 873 MiB; memory must also grow at all. We also measure the peak memory in
        tensors and the memory that PyTorch reserves.""",
        not_shown="The context’s part of this memory, which does not grow.",
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
        design="""A trains in float16 without a GradScaler, B with one. SRCNN runs alone on a resident batch of 128
        patches of 64 pixels. “Little” means less than 3 %.""",
        not_shown="Whether it is needed: gradients that vanish without it leave no trace in a step’s time.",
        figures="BOT names loss scaling together with float16, and says nothing of its cost.",
        needs="cuda",
        effect=change("grad_scaler", False, True, {**DEVICE_STEP, "amp": "fp16"}, says="same"),
    ),
    Claim(
        id="batchnorm-sync",
        says="A batch norm makes the host wait for the device.",
        sources=("API",),
        design="""This claim has no pair. We divide the host's time in the forward pass by the span of that pass on the
        device. The network is SRCNN with batch norms. A host that waits for the last norms takes about as long as the
        device. So we compare the share with 1. A host that only launches is far ahead of the device. Every step ends
        with reading the loss, so no step begins behind a full queue of launches. We also measure SRCNN without
        norms.""",
        not_shown="Norms that are synchronised over several devices.",
        needs="cuda",
        effect=level("forward_on_host", {**_DEVICE_NORMED, **_READ}, figure=1.0),
        asides={"without norms": level("forward_on_host", {**DEVICE_STEP, **_READ}, figure=1.0)},
    ),
    Claim(
        id="channels-last",
        says="Storing images with their channels last makes convolutions faster.",
        sources=("field",),
        design=f"""A keeps images and weights in PyTorch's usual layout, B with channels last. Both give the same
        numbers within rounding. SRCNN runs alone on a resident batch of 8 and of 32 patches of 16 pixels. {_ON_CUDA} We
        also measure mixed precision, for which accelerators want this layout.""",
        not_shown="Networks of many channels: the layout is made for them.",
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
