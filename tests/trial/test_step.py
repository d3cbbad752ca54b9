"""The training step: both sides of every axis do the same work, and what is switched off is not there."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from feedrate.loaders import Fields
from feedrate.trial import stages
from feedrate.trial import step as steps
from feedrate.trial.job import Job
from feedrate.trial.step import PlainStep, Step, Training

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
SIZE = 16
mse = torch.nn.functional.mse_loss
Trained = tuple[torch.Tensor, list[float]]


def trial(**cell: object) -> Job:
    return Job("trial", cell={"workload": "synthetic", "mode": "train", "patch_size": SIZE, **cell})


def built(seed: int = 1, **cell: object) -> Training:
    torch.manual_seed(seed)
    return steps.build(trial(**cell), CPU, lambda model: model)


def batches(count: int, samples: int = 3, size: int = SIZE) -> list[Fields]:
    generator = torch.Generator().manual_seed(7)
    return [tuple(torch.rand(2, samples, 3, size, size, generator=generator)) for _ in range(count)]


def run(step: Step, fields: Any) -> torch.Tensor:
    """Run a step; its loss."""
    loss = step.forward(fields)
    step.optimizer(step.backward(loss))
    return loss


def weights(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([weights.detach().flatten() for weights in network.parameters()])


def trained(count: int = 3, samples: int = 3, size: int = SIZE, **cell: object) -> Trained:
    """The weights after some steps, and the losses on the way."""
    training = built(patch_size=size, **cell)
    losses = [run(training.step, fields).item() for fields in batches(count, samples, size)]
    return weights(training.network), losses


def recording(note: Callable[[], object], seen: list[Any]) -> Step:
    """A step that notes something in each of its parts, and passes on what it gets."""

    def part(state: Any) -> Any:
        seen.append(note())
        return state

    return Step(part, part, part)


def test_the_plain_step_is_plain() -> None:
    """With every axis at its default a step is three methods of one object, with nothing around or hooked into them."""
    training = built()
    plain: PlainStep = training.step.forward.__self__
    assert type(plain) is PlainStep
    assert training.step == plain.step() == Step(plain.forward, plain.backward, plain.optimize)
    assert (training.rehearsals, training.overflows) == (0, None)
    assert not plain.adam._optimizer_step_post_hooks
    assert plain._model is training.network
    row = stages.build(trial(), CPU)
    assert [stage.phase for stage in row] == ["forward", "backward", "optimizer"]
    assert [stage.run.__func__ for stage in row[1:]] == [PlainStep.backward, PlainStep.optimize]


SMALL = {"count": 1, "samples": 1, "size": 2, "model": "pointwise"}


@pytest.mark.parametrize(
    ("cell", "how"),
    [
        ({"zero_grad": "memset"}, {}),
        ({"sync_every_step": True}, {}),
        ({"debug": "anomaly"}, {}),
        ({"fusion": "script"}, {}),
        ({"debug": "profiler"}, {"count": 2}),
        ({"debug": "gradcheck"}, SMALL),
        ({"debug": "gradgradcheck"}, SMALL),
    ],
    ids=str,
)
def test_the_same_weights_to_the_bit(cell: dict[str, Any], how: dict[str, Any]) -> None:
    """Clearing gradients, reading the loss, every debugging aid and TorchScript change no number."""
    (found, losses), (expected, plain) = trained(**how, **cell), trained(**how)
    assert torch.equal(found, expected)
    assert losses == plain


def test_gradients_are_dropped_or_zeros() -> None:
    """After a step a gradient is not there (none), or is there and zero (memset)."""
    left = {}
    for way in ("none", "memset"):
        training = built(zero_grad=way)
        run(training.step, batches(1)[0])
        left[way] = [weights.grad for weights in training.network.parameters()]
    assert left["none"] == [None] * len(left["memset"])
    assert all(gradient is not None and not gradient.any() for gradient in left["memset"])


def test_channels_last_is_a_layout() -> None:
    """Weights and images lie otherwise, and after some steps the weights are those of the contiguous layout."""
    (found, _), (expected, _) = trained(2, memory_format="channels_last"), trained(2)
    assert torch.allclose(found, expected, atol=1e-6)
    training = built(model="srcnn", memory_format="channels_last")
    seen: list[torch.Tensor] = []
    training.network.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    training.step.forward(batches(1)[0])
    last = torch.channels_last
    assert seen[0].is_contiguous(memory_format=last)
    assert not seen[0].is_contiguous()
    assert all(w.is_contiguous(memory_format=last) for w in training.network.parameters() if w.dim() == 4)


def test_mixed_precision_computes_the_same_roughly() -> None:
    """Losses in bfloat16 are within its 8 bits of those in float32; weights stay float32; nothing overflows."""
    assert all(weights.dtype == torch.float32 for weights in built(amp="bf16").network.parameters())
    found, expected = trained(amp="bf16"), trained()
    assert found[1] == pytest.approx(expected[1], rel=2**-7)
    assert found[1] != expected[1]
    assert torch.allclose(found[0], expected[0], atol=1e-3)


def test_autocast_is_around_the_forward_pass_alone() -> None:
    """The backward pass and the update run outside, as PyTorch advises."""
    on: list[bool] = []
    run(steps.with_autocast(recording(lambda: torch.is_autocast_enabled("cpu"), on), CPU, "bf16"), ())
    assert on == [True, False, False]


def test_a_scaled_loss_gives_the_same_weights() -> None:
    """Scaling by a power of two and back is exact in float32: the same weights to the bit."""
    torch.manual_seed(1)
    model = steps.build_network(trial(), CPU)
    plain, scaled = PlainStep(copy.deepcopy(model), mse), PlainStep(model, mse)
    for step in (plain.step(), steps.with_scaler(scaled, CPU)):
        for fields in batches(3):
            run(step, fields)
    assert torch.equal(weights(plain._model), weights(model))


@pytest.mark.parametrize(("scaler", "expected"), [(True, 1), (False, 3)])
def test_steps_that_overflow_are_counted(scaler: bool, expected: int) -> None:
    """The second of four steps overflows: a scaler skips it and goes on; without one it spoils every later step."""
    torch.manual_seed(1)
    real = PlainStep(torch.nn.Conv2d(3, 3, 1), mse)
    overflows = steps.OverflowCount(real.adam)
    step = overflows.watch(steps.with_scaler(real, CPU) if scaler else real.step())
    for number, (source, target) in enumerate(batches(4)):
        run(step, (source * (1e30 if number == 1 else 1.0), target))
    assert overflows.count() == expected
    overflows.reset()
    assert overflows.count() == 0


def test_gradients_that_overflow_alone_are_counted() -> None:
    """A scale too large for the gradients, though the loss is finite, is a step that the scaler skips: it counts."""
    real = PlainStep(torch.nn.Conv2d(3, 3, 1), lambda output, target: mse(output, target) * 1e34)
    overflows = steps.OverflowCount(real.adam)
    loss = run(overflows.watch(steps.with_scaler(real, CPU)), batches(1)[0])
    assert loss.isfinite()
    assert overflows.count() == 1


def test_the_loss_is_read_last_and_once() -> None:
    """Reading the loss comes behind the update, once in every step."""
    order: list[str] = []

    class Loss:
        def item(self) -> None:
            order.append("item")

    plain = Step(lambda _: Loss(), lambda _: order.append("backward"), lambda _: order.append("optimizer"))
    step = steps.with_loss_read(plain)
    for _ in range(2):
        run(step, ())
    assert order == ["backward", "optimizer", "item"] * 2


def test_a_debugging_aid_is_on_in_the_whole_step_only() -> None:
    """Anomaly detection is on from the beginning of a step to its end, and off between steps."""
    on: list[bool] = []
    step = steps.with_context(recording(torch.is_anomaly_enabled, on), steps.DEBUG_CONTEXTS["anomaly"])
    for _ in range(2):
        run(step, ())
        on.append(torch.is_anomaly_enabled())
    assert on == [True, True, True, False] * 2


def test_a_check_sees_the_batch_and_the_loss() -> None:
    """A check gets the loss of every batch as a function of its input, in double precision, and it holds."""
    training = built()
    seen: list[tuple[float, torch.Tensor]] = []

    def check(function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor], **_: object) -> bool:
        seen.append((function(*inputs).item(), inputs[0]))
        return True

    step = steps.with_gradient_check(training.step, training.network, mse, check)
    (fields,) = batches(1)
    loss = step.forward(fields)
    step.backward(loss)
    assert seen[0][0] == pytest.approx(loss.item(), rel=1e-5)
    assert (seen[0][1].dtype, seen[0][1].requires_grad) == (torch.float64, True)
    assert torch.equal(seen[0][1].float(), fields[0])


@pytest.mark.parametrize(
    ("patch", "sizes"), [(7, [7]), (15, [15]), (16, [16, 8]), (33, [33, 25, 17, 9]), (64, [64, 56, 48, 40])]
)
def test_sizes(patch: int, sizes: list[int]) -> None:
    """The whole image first, then each smaller by 8 pixels than the one before, four at most, none below 8 pixels."""
    assert steps.image_sizes(patch) == sizes


def test_shapes_vary_and_samples_do_not() -> None:
    """Every step sees all samples of its batch, cut from their upper left, in a cycle of sizes; labels stay whole."""
    seen: list[Fields] = []
    step = steps.with_sizes(Step(seen.append, lambda _: None, lambda _: None), 24)
    source, labels = torch.rand(5, 3, 24, 24), torch.arange(5)
    for _ in range(4):
        step.forward((source, labels, torch.zeros(5, 9)))
    assert [tuple(fields[0].shape) for fields in seen] == [(5, 3, size, size) for size in (24, 16, 8, 24)]
    assert all(torch.equal(fields[0], source[..., : fields[0].shape[2], : fields[0].shape[3]]) for fields in seen)
    assert all(fields[0].is_contiguous() for fields in seen)
    assert all(torch.equal(fields[1], labels) for fields in seen)


@pytest.mark.parametrize("benchmark", [True, False])
def test_cudas_libraries_are_set_whatever_they_were(benchmark: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the network is made: the autotuner as the cell says; TF32 for convolutions, not for products of matrices.

    By PyTorch's old names and by the new ones.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    seen: list[tuple[object, ...]] = []

    def bare(_job: Job, _device: torch.device) -> torch.nn.Module:
        tf32 = matmul.allow_tf32, matmul.fp32_precision, cudnn.allow_tf32, cudnn.conv.fp32_precision
        seen.append((cudnn.benchmark, *tf32))
        return torch.nn.Conv2d(3, 3, 1)

    monkeypatch.setattr(steps, "build_network", bare)
    before = cudnn.benchmark, matmul.allow_tf32, cudnn.allow_tf32
    try:
        cudnn.benchmark, matmul.allow_tf32, cudnn.allow_tf32 = not benchmark, True, False
        steps.build(trial(cudnn_benchmark=benchmark), torch.device("cuda"), lambda model: model)
    finally:
        cudnn.benchmark, matmul.allow_tf32, cudnn.allow_tf32 = before
    assert seen == [(benchmark, False, "ieee", True, "tf32")]


@pytest.mark.parametrize("fusion", ["eager", "script"])
def test_a_wrapper_goes_around_the_network_that_is_trained(fusion: str) -> None:
    """What replicates a network gets it before the optimizer does, and after it has become a script."""
    wrapped: list[torch.nn.Module] = []

    def wrap(model: torch.nn.Module) -> torch.nn.Module:
        wrapped.append(model)
        return torch.nn.Sequential(model)

    training = steps.build(trial(fusion=fusion), CPU, wrap)
    assert isinstance(wrapped[0], torch.jit.ScriptModule) == (fusion == "script")
    optimized = {id(p) for p in training.optimizer.param_groups[0]["params"]}
    assert optimized == {id(p) for p in training.network.parameters()}
    assert type(training.step.forward.__self__._model) is torch.nn.Sequential


def noting(seen: list[Any]) -> Step:
    """A step that notes what its forward pass gets, and its updates."""

    def forward(fields: Any) -> Any:
        seen.append(fields)
        return fields[0].sum()

    return Step(forward, lambda _: None, lambda _: seen.append("updated"))


@pytest.mark.parametrize(("where", "source"), [("host", "cpu"), ("device", "meta")])
def test_a_random_tensor_changes_no_input(where: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides hand on an input that is equal bit for bit, with the target and the payload as they were.

    They draw as many numbers, of the input's shape and type, on the host or where the step runs.
    """
    seen: list[Any] = []
    image, *others = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8), torch.arange(5)
    steps.with_random_tensor(noting(seen), CPU, where).forward((image, *others))
    ((given, *rest),) = seen
    assert torch.equal(given, image)
    assert given is not image
    assert all(map(operator.is_, rest, others))
    rand = torch.rand
    drawn: list[tuple[Any, ...]] = []

    def noted(shape: Any, dtype: Any, device: Any) -> torch.Tensor:
        drawn.append((tuple(shape), dtype, device.type))
        return rand(shape, dtype=dtype, device=device)

    monkeypatch.setattr(torch, "rand", noted)
    step = steps.with_random_tensor(noting([]), torch.device("meta"), where)
    step.forward((torch.empty(2, 3, 4, 4, dtype=torch.float64, device="meta"),))
    assert drawn == [((2, 3, 4, 4), torch.float64, source)]


@pytest.mark.parametrize(("every", "wanted"), [(1, [0, 1, 2, 3]), (2, [1, 3]), (3, [2])])
def test_outputs_come_back_every_so_many_steps(every: int, wanted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every n-th output is copied after the update, detached; the loss is what it was."""
    kept: list[Any] = []
    monkeypatch.setattr(steps.OutputCopies, "_copy_pageable", lambda _, output: kept.append(output))
    outputs = steps.OutputCopies("pageable", every)
    step = outputs.watch_step(noting(kept))
    loss = outputs.watch_loss(lambda output, target: output + target)
    for k in range(4):
        output = torch.tensor(float(k), requires_grad=True)
        assert loss(output, torch.tensor(1.0)).item() == k + 1
        step.optimizer(None)
    tensors = [entry for entry in kept if entry != "updated"]
    assert [int(tensor) for tensor in tensors] == wanted
    assert not any(tensor.requires_grad for tensor in tensors)
    assert kept.count("updated") == 4
    assert kept[0] == "updated"


def test_pinned_buffers_are_not_overwritten_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two buffers in turn for each shape, made once; before one is written, the copy into it before must be done."""
    diary: list[str] = []
    buffers: list[torch.Tensor] = []

    class Event:
        def __init__(self) -> None:
            self.name = f"e{len(buffers)}"

        def synchronize(self) -> None:
            diary.append(f"wait {self.name}")

        def record(self) -> None:
            diary.append(f"record {self.name}")

    def buffer(_: object, output: torch.Tensor) -> tuple[torch.Tensor, Event]:
        event = Event()
        buffers.append(torch.empty_like(output))
        return buffers[-1], event

    monkeypatch.setattr(steps.PinnedBuffers, "_buffer", buffer)
    pinned = steps.PinnedBuffers()
    for k in range(3):
        pinned.copy(torch.full((2,), float(k)))
    assert diary == ["wait e0", "record e0", "wait e1", "record e1", "wait e0", "record e0"]
    assert [buffer.tolist() for buffer in buffers] == [[2.0, 2.0], [1.0, 1.0]]
    pinned.copy(torch.zeros(3))
    assert len(buffers) == 4
