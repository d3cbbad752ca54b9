"""The training step of a trial, put together from its cell.

A step is three callables. An axis that changes it makes another step out of one; an axis at its default adds nothing,
so that the plain step pays for nothing that it does not do. ``build`` puts them together from inside to outside.

``debug`` leaves one of PyTorch's debugging aids on in every step. Each step has a profiler of its own: starting and
stopping it is part of ``forward`` and ``optimizer``. ``emit_nvtx`` waits for the device at both ends. The checks of
gradients are part of ``backward``; they evaluate the loss twice, in double precision, for every number of the input,
and look at a copy of the network with its first weights. A failed one ends no trial: the question is its price.

``fusion = compile`` uses ``torch.compile`` with static shapes, so that with ``vary_shapes`` each size has code of its
own, made before the window; ``cuda_graphs`` has what was compiled launched as one graph, too (PyTorch calls it
``mode="reduce-overhead"``). It compiles in this process: a pool of compiling processes would burden the window.
PyTorch keeps what it compiled among the temporary files of a block, where later trials of the block find it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle
from typing import Any, NamedTuple, cast

import torch
from torch.autograd.profiler import emit_nvtx
from torch.profiler import ProfilerActivity, profile

from feedrate.loaders import Fields
from feedrate.schema import plugins
from feedrate.trial.job import Job

LEARNING_RATE = 1e-4
REHEARSALS = {"compile": 1, "script": 2, "cuda_graphs": 3}
"""Steps of one shape after which code is made: TorchScript watches its first run and optimises in the second; graphs
are recorded in the step behind one that warms them up."""
CUDA_REHEARSALS = 2
"""Steps of one shape after which CUDA has loaded its libraries and chosen its algorithms, memory of both passes."""
AMP_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
SIZE_STEP, MAX_SIZES = 8, 4
"""Pixels by which one size of ``vary_shapes`` is smaller than the one before, and how many sizes there are at most."""
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(output, target) → a scalar tensor."""
Wrap = Callable[[torch.nn.Module], torch.nn.Module]
"""Puts something around a network, such as its replication."""


class Step(NamedTuple):
    """What a step does, in its order; an axis that changes a step makes another one out of it."""

    forward: Callable[[Fields], torch.Tensor]
    """Loss of one batch of (input, target); fields behind them are ignored."""
    backward: Callable[[torch.Tensor], None]
    optimizer: Callable[[None], None]
    """Update of the weights; gradients are cleared for the next step."""

    def before(self, change: Callable[[Fields], Fields]) -> Step:
        """Change the fields that the forward pass gets."""
        return self._replace(forward=lambda fields: self.forward(change(fields)))

    def noting(self, note: Callable[[torch.Tensor], object]) -> Step:
        """Note every loss."""

        def forward(fields: Fields) -> torch.Tensor:
            loss = self.forward(fields)
            note(loss)
            return loss

        return self._replace(forward=forward)

    def after(self, act: Callable[[], object]) -> Step:
        """Do something when a step ends."""

        def optimize(_: None) -> None:
            self.optimizer(None)
            act()

        return self._replace(optimizer=optimize)


class PlainStep:
    """Forward and loss, backward, optimizer (Adam) of a network, and nothing around them."""

    def __init__(self, model: torch.nn.Module, loss: Loss, *, set_to_none: bool = True) -> None:
        self._model, self._loss = model, loss
        self.adam = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        self.clear = partial(self.adam.zero_grad, set_to_none=set_to_none)

    def forward(self, fields: Fields) -> torch.Tensor:
        """Compute the loss of a batch."""
        source, target = fields[:2]
        return self._loss(self._model(source), target)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute gradients."""
        loss.backward()  # type: ignore[no-untyped-call]

    def optimize(self, _: None) -> None:
        """Update the weights and clear the gradients."""
        self.adam.step()
        self.clear()

    def step(self) -> Step:
        """The three parts in their order."""
        return Step(self.forward, self.backward, self.optimize)


@dataclass(frozen=True, slots=True)
class Training:
    """The step of a trial, and what is done about it outside the window."""

    step: Step
    network: torch.nn.Module
    """Bare: its parameters are the ones that are trained."""
    optimizer: torch.optim.Optimizer
    rehearsals: int
    """Steps that make all code that the trial runs; 0 where nothing is compiled, loaded or chosen."""
    overflows: OverflowCount | None
    """Counts steps that were not finite; None without mixed precision."""


def build(job: Job, device: torch.device, wrap: Wrap) -> Training:
    """Put the training step of a trial together."""
    if device.type == "cuda":
        _set_libraries(job)
    loss = plugins.load("feedrate.workloads", job.value("workload")).loss
    network = build_network(job, device)
    fusion, debug = job.value("fusion"), job.value("debug")
    outputs = None if job.value("d2h") == "none" else OutputCopies(job.value("d2h"), job.value("d2h_every"))
    watched, set_to_none = outputs.watch(loss) if outputs else loss, job.value("zero_grad") == "none"
    plain = PlainStep(_fuse(network, fusion, wrap), watched, set_to_none=set_to_none)
    step = with_scaler(plain, device) if job.value("grad_scaler") else plain.step()
    step = _around_forward(job, step, device)
    if debug in GRADIENT_CHECKS:
        step = with_gradient_check(step, network, loss, GRADIENT_CHECKS[debug])
    overflows = None if job.value("amp") == "off" else OverflowCount(plain.adam)
    if overflows:
        step = step.noting(overflows.note)
    if outputs:
        step = step.after(outputs.copy)
    if job.value("sync_every_step"):
        step = with_loss_read(step)
    if debug in DEBUG_CONTEXTS:
        step = with_context(step, DEBUG_CONTEXTS[debug])
    rehearsals = max(REHEARSALS.get(fusion, 0), CUDA_REHEARSALS if device.type == "cuda" else 0)
    return Training(step, network, plain.adam, rehearsals * count_sizes(job), overflows)


def _around_forward(job: Job, step: Step, device: torch.device) -> Step:
    """Change what the forward pass gets, and in which precision it computes."""
    if (amp := job.value("amp")) != "off":  # the backward pass stays outside, as in PyTorch's own recipe
        step = step._replace(forward=torch.autocast(device.type, dtype=AMP_TYPES[amp])(step.forward))
    if job.value("memory_format") == "channels_last":
        step = step.before(partial(_of_images, lambda image: image.contiguous(memory_format=torch.channels_last)))
    if job.value("vary_shapes"):
        step = with_sizes(step, job.value("patch_size"))
    if job.value("create_on") != "none":
        step = with_random_tensor(step, device, job.value("create_on"))
    return step


def _set_libraries(job: Job) -> None:
    """Set how CUDA's libraries compute, before the network is made, whatever TORCH_ALLOW_TF32_CUBLAS_OVERRIDE says.

    TF32 is as PyTorch has it by itself: for convolutions, not for products of matrices. The old names set the new ones
    (``fp32_precision``) too; the new ones alone would not, and PyTorch's compiler stops where they disagree.
    """
    torch.backends.cudnn.benchmark = job.value("cudnn_benchmark")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False


def build_network(job: Job, device: torch.device) -> torch.nn.Module:
    """Make the network of a trial where it runs, with the knobs that its file declares, its weights laid out."""
    file = plugins.load("feedrate.workloads.models", job.value("model"))
    knobs = {knob: job.value(knob) for knob in file.KNOBS}
    if file.TASK == "classification":
        knobs["classes"] = plugins.load("feedrate.workloads", job.value("workload")).CLASSES
    network: torch.nn.Module = file.build(**knobs).to(device)
    if job.value("memory_format") == "channels_last":
        network.to(memory_format=torch.channels_last)
    return network


def _fuse(network: torch.nn.Module, fusion: str, wrap: Wrap) -> torch.nn.Module:
    """Make the network that is called; its parameters stay the bare one's."""
    if fusion == "script":
        with warnings.catch_warnings():
            # TorchScript is deprecated: the question is whether it helps where it is still there.
            warnings.filterwarnings("ignore", message=".*torch.jit.script.* is deprecated")
            network = cast(torch.nn.Module, torch.jit.script(network))
    if fusion not in ("compile", "cuda_graphs"):
        return wrap(network)
    graphs = {"triton.cudagraphs": True} if fusion == "cuda_graphs" else {}  # what mode="reduce-overhead" stands for
    compiled = torch.compile(wrap(network), dynamic=False, options={"compile_threads": 1, **graphs})
    return cast(torch.nn.Module, compiled)


def image_sizes(patch_size: int) -> list[int]:
    """The sizes that ``vary_shapes`` takes in turn: the whole, and up to three smaller ones."""
    smaller = (patch_size - SIZE_STEP * k for k in range(1, MAX_SIZES))
    return [patch_size, *(size for size in smaller if size >= SIZE_STEP)]


def count_sizes(job: Job) -> int:
    """Count the sizes that a trial's images have in turn."""
    return len(image_sizes(job.value("patch_size"))) if job.value("vary_shapes") else 1


def _of_images(change: Callable[[torch.Tensor], torch.Tensor], fields: Fields) -> Fields:
    """Change the images of a batch, input and perhaps target."""
    return tuple(change(field) if field.dim() == 4 else field for field in fields[:2])


def with_sizes(step: Step, patch_size: int) -> Step:
    """Cut images to another size from step to step; the cut, a copy, is part of ``forward``; labels stay."""
    sizes = cycle(image_sizes(patch_size))

    def cut(fields: Fields) -> Fields:
        size = next(sizes)
        return _of_images(lambda image: image[..., :size, :size].contiguous(), fields)

    return step.before(cut)


def with_scaler(plain: PlainStep, device: torch.device) -> Step:
    """Scale the loss, and skip an update that overflowed: ``GradScaler`` waits in every step to read whether it did."""
    scaler = torch.amp.GradScaler(device.type)

    def optimize(_: None) -> None:
        scaler.step(plain.adam)
        scaler.update()
        plain.clear()

    return Step(plain.forward, lambda loss: plain.backward(scaler.scale(loss)), optimize)


class OverflowCount:
    """Counts steps that were not finite, without a kernel or a synchronisation in any of them.

    Losses are kept on the device and looked at after the window. A step counts when its loss was not finite, or when
    the scaler skipped its update because a gradient was not; without a scaler such a gradient shows in later losses.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._losses: list[torch.Tensor] = []
        self._updates = 0
        optimizer.register_step_post_hook(self._count_update)

    def _count_update(self, *_: object) -> None:
        self._updates += 1

    def note(self, loss: torch.Tensor) -> None:
        """Keep the loss of a step."""
        self._losses.append(loss.detach())

    def reset(self) -> None:
        """Start over; called outside a window."""
        self._losses.clear()
        self._updates = 0

    def count(self) -> int:
        """Count the steps since the reset that were not finite; waits for the device."""
        if not self._losses:
            return 0
        not_finite = int((~torch.stack(self._losses).isfinite()).sum().item())
        return max(not_finite, len(self._losses) - self._updates)


def with_random_tensor(step: Step, device: torch.device, where: str) -> Step:
    """Make a tensor of random numbers in every step, of the input's shape, and add none of it (× 0) to the input.

    The sides differ in where the numbers are drawn, and in the copy from there. All of it is part of ``forward``.
    """
    source = torch.device("cpu") if where == "host" else device

    def add(fields: Fields) -> Fields:
        image, *others = fields
        noise = torch.rand(image.shape, dtype=image.dtype, device=source).to(device)
        return (torch.add(image, noise, alpha=0), *others)

    return step.before(add)


class OutputCopies:
    """The model's outputs, every n-th of which is copied back to the host at the end of its step.

    The copy, or its launch, is part of ``optimizer``. The host waits for one to pageable memory; the last is kept.
    """

    def __init__(self, where: str, every: int) -> None:
        self._copy = PinnedBuffers().copy if where == "pinned" else torch.Tensor.cpu
        self._turns = cycle([*[False] * (every - 1), True])
        self._output = self._copied = torch.empty(0)

    def watch(self, loss: Loss) -> Loss:
        """Take the outputs where the loss gets them."""

        def watched(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            self._output = output.detach()
            return loss(output, target)

        return watched

    def copy(self) -> None:
        """Copy the step's output back, if it is its turn, and let go of it."""
        if next(self._turns):
            self._copied = self._copy(self._output)
        del self._output


class PinnedBuffers:
    """Two pinned buffers in turn for every shape, made when it first comes, which is in the warm-up.

    A copy returns at once; a buffer is written again only when the copy before into it is done.
    """

    BUFFERS = 2

    def __init__(self) -> None:
        self._turns: dict[tuple[torch.Size, torch.dtype], Iterator[tuple[torch.Tensor, torch.Event]]] = {}

    def copy(self, output: torch.Tensor) -> torch.Tensor:
        """Begin to copy an output into a buffer."""
        kind = (output.shape, output.dtype)
        if kind not in self._turns:
            self._turns[kind] = cycle([self._buffer(output) for _ in range(self.BUFFERS)])
        buffer, done = next(self._turns[kind])
        done.synchronize()
        buffer.copy_(output, non_blocking=True)
        done.record()
        return buffer

    def _buffer(self, output: torch.Tensor) -> tuple[torch.Tensor, torch.Event]:
        """A buffer of the same shape and layout, and the event that ends a copy into it."""
        return torch.empty_like(output, device="cpu", pin_memory=True), torch.Event()


def with_loss_read(step: Step) -> Step:
    """Read the loss (``loss.item()``) when a step ends; the wait for all that the device does is in ``optimizer``."""
    losses: list[torch.Tensor] = []
    return step.noting(losses.append).after(lambda: losses.pop().item())


@cache
def _profiler_activities() -> tuple[ProfilerActivity, ...]:
    """What a profiler watches; cached, as asking CUDA takes time in every step."""
    return (ProfilerActivity.CPU, *((ProfilerActivity.CUDA,) if torch.cuda.is_available() else ()))


DEBUG_CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "profiler": lambda: profile(activities=_profiler_activities()),
    "nvtx": emit_nvtx,
}
GRADIENT_CHECKS: dict[str, Callable[..., bool]] = {
    "gradcheck": torch.autograd.gradcheck,
    "gradgradcheck": torch.autograd.gradgradcheck,
}


def with_context(step: Step, make: Callable[[], AbstractContextManager[Any]]) -> Step:
    """Enter a new context when a step begins and leave it when the step has ended."""
    entered = ExitStack()

    def enter(fields: Fields) -> Fields:
        entered.enter_context(make())
        return fields

    return step.before(enter).after(entered.close)


def with_gradient_check(step: Step, model: torch.nn.Module, loss: Loss, check: Callable[..., bool]) -> Step:
    """Check the gradients of every batch's loss after the backward pass."""
    double = copy.deepcopy(model).double()
    batches: list[Fields] = []

    def keep(fields: Fields) -> Fields:
        batches.append(fields)
        return fields

    def backward(value: torch.Tensor) -> None:
        step.backward(value)
        source, target = (field.double() if field.is_floating_point() else field for field in batches.pop()[:2])
        source = source.detach().requires_grad_()
        check(lambda image: loss(double(image), target), (source,), raise_exception=False)

    return step._replace(backward=backward).before(keep)
