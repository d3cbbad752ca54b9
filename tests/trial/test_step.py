"""Axes of the training step: both sides of each do the same work, and what is switched off is not there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feedrate.trial import stages
from feedrate.trial import step as steps
from feedrate.trial.job import Job
from feedrate.trial.loader import Batch, Fields
from feedrate.trial.step import Training, moving, network, options
from feedrate.trial.step.plain import RealStep, Step

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
SIZE = 16


def trial(**cell: object) -> Job:
    return Job("trial", cell={"workload": "synthetic", "mode": "train", "patch_size": SIZE, **cell})


def built(seed: int = 1, **cell: object) -> Training:
    torch.manual_seed(seed)
    return steps.build(trial(**cell), CPU, lambda model: model)


def batches(count: int, samples: int = 3, size: int = SIZE) -> list[Fields]:
    generator = torch.Generator().manual_seed(7)
    return [tuple(torch.rand(2, samples, 3, size, size, generator=generator)) for _ in range(count)]


def trained(count: int = 3, samples: int = 3, size: int = SIZE, **cell: object) -> tuple[torch.Tensor, list[float]]:
    """The weights after some steps, and the losses on the way."""
    training = built(patch_size=size, **cell)
    losses = []
    for fields in batches(count, samples, size):
        loss = training.step.forward(fields)
        losses.append(loss.item())
        training.step.optimizer(training.step.backward(loss))
    return torch.cat([weights.detach().flatten() for weights in training.network.parameters()]), losses


def assert_same(found: tuple[torch.Tensor, list[float]], expected: tuple[torch.Tensor, list[float]]) -> None:
    assert torch.equal(found[0], expected[0])
    assert found[1] == expected[1]


def test_the_plain_step_is_plain() -> None:
    """With every axis at its default a step is three methods of one object, with nothing around or hooked into them."""
    training = built()
    plain: RealStep = training.step.forward.__self__
    assert type(plain) is RealStep
    assert training.step == plain.step() == Step(plain.forward, plain.backward, plain.optimize)
    assert (training.rehearsals, training.overflows) == (0, None)
    assert not plain.optimizer._optimizer_step_post_hooks
    assert plain._model is training.network
    row = stages.build(trial(), CPU)
    assert [stage.phase for stage in row] == ["forward", "backward", "optimizer"]
    assert [stage.run.__func__ for stage in row[1:]] == [RealStep.backward, RealStep.optimize]


@pytest.mark.parametrize(
    "cell",
    [{"zero_grad": "memset"}, {"sync_every_step": True}, {"debug": "anomaly"}, {"fusion": "script"}],
    ids=str,
)
def test_the_same_weights_to_the_bit(cell: dict[str, Any]) -> None:
    """Ways of clearing gradients, reading the loss, looking for anomalies and TorchScript change no number."""
    assert_same(trained(**cell), trained())


def test_the_same_weights_under_the_profiler() -> None:
    """Profiling changes no number."""
    assert_same(trained(2, debug="profiler"), trained(2))


@pytest.mark.parametrize(("check", "model"), [("gradcheck", "pointwise"), ("gradgradcheck", "pointwise")])
def test_the_same_weights_beside_a_check(check: str, model: str) -> None:
    """Checking gradients changes neither weights nor gradients of the network that is trained."""
    small = {"count": 1, "samples": 1, "size": 2, "model": model}
    assert_same(trained(**small, debug=check), trained(**small))


def test_gradients_are_dropped_or_zeros() -> None:
    """After a step a gradient is not there (none), or is there and zero (memset)."""
    left = {}
    for way in ("none", "memset"):
        training = built(zero_grad=way)
        (fields,) = batches(1)
        training.step.optimizer(training.step.backward(training.step.forward(fields)))
        left[way] = [weights.grad for weights in training.network.parameters()]
    assert left["none"] == [None] * len(left["memset"])
    assert all(gradient is not None and not gradient.any() for gradient in left["memset"])


@pytest.mark.parametrize("model", ["srcnn", "pointwise"])
def test_channels_last_is_a_layout(model: str) -> None:
    """Weights and images lie otherwise, and after some steps the weights are those of the contiguous layout."""
    found, expected = trained(2, model=model, memory_format="channels_last"), trained(2, model=model)
    assert torch.allclose(found[0], expected[0], atol=1e-6)
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
    training = built(amp="bf16")
    assert all(weights.dtype == torch.float32 for weights in training.network.parameters())
    found, expected = trained(amp="bf16"), trained()
    assert found[1] == pytest.approx(expected[1], rel=2**-7)
    assert found[1] != expected[1]
    assert torch.allclose(found[0], expected[0], atol=1e-3)


def test_autocast_is_around_the_forward_pass_alone() -> None:
    """The backward pass and the update run outside, as PyTorch advises."""
    on: list[bool] = []

    def note(given: Any) -> Any:
        on.append(torch.is_autocast_enabled("cpu"))
        return given

    step = options.autocast(Step(note, note, note), CPU, "bf16")
    step.optimizer(step.backward(step.forward(())))
    assert on == [True, False, False]


def test_a_scaled_loss_gives_the_same_weights() -> None:
    """Scaling by a power of two and back is exact in float32: the same weights to the bit."""
    torch.manual_seed(1)
    model = network.bare(trial(), CPU)
    plain, scaled = RealStep(copy.deepcopy(model), mse), RealStep(model, mse)
    for step in (plain.step(), options.scaled(scaled, CPU)):
        for fields in batches(3):
            step.optimizer(step.backward(step.forward(fields)))
    assert all(torch.equal(a, b) for a, b in zip(plain._model.parameters(), model.parameters(), strict=True))


def mse(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(output, target)


@pytest.mark.parametrize(("scaler", "expected"), [(True, 1), (False, 3)])
def test_steps_that_overflow_are_counted(scaler: bool, expected: int) -> None:
    """The second of four steps overflows: a scaler skips it and goes on; without one it spoils every later step."""
    torch.manual_seed(1)
    real = RealStep(torch.nn.Conv2d(3, 3, 1), mse)
    overflows = options.Overflows(real.optimizer)
    step = overflows.watched(options.scaled(real, CPU) if scaler else real.step())
    for number, (source, target) in enumerate(batches(4)):
        step.optimizer(step.backward(step.forward((source * (1e30 if number == 1 else 1.0), target))))
    assert overflows.count() == expected
    overflows.reset()
    assert overflows.count() == 0


def test_gradients_that_overflow_alone_are_counted() -> None:
    """A scale too large for the gradients, though the loss is finite, is a step that the scaler skips: it counts."""
    real = RealStep(torch.nn.Conv2d(3, 3, 1), lambda output, target: mse(output, target) * 1e34)
    overflows = options.Overflows(real.optimizer)
    step = overflows.watched(options.scaled(real, CPU))
    loss = step.forward(batches(1)[0])
    step.optimizer(step.backward(loss))
    assert loss.isfinite()
    assert overflows.count() == 1


def test_the_loss_is_read_last_and_once() -> None:
    """Reading the loss comes behind the update, once in every step."""
    order: list[str] = []

    class Loss:
        def item(self) -> None:
            order.append("item")

    plain = Step(lambda _: Loss(), lambda _: order.append("backward"), lambda _: order.append("optimizer"))
    step = moving.read(plain)
    for _ in range(2):
        step.optimizer(step.backward(step.forward(())))
    assert order == ["backward", "optimizer", "item"] * 2


def test_a_debugging_aid_is_on_in_the_whole_step_only() -> None:
    """Anomaly detection is on from the beginning of a step to its end, and off between steps."""
    on: list[bool] = []

    def note(given: Any) -> Any:
        on.append(torch.is_anomaly_enabled())
        return given

    step = options.around(Step(note, note, note), options.AROUND["anomaly"])
    for _ in range(2):
        step.optimizer(step.backward(step.forward(())))
        on.append(torch.is_anomaly_enabled())
    assert on == [True, True, True, False] * 2


def test_every_step_has_a_context_of_its_own() -> None:
    """A context is made anew for each step, as nvtx' can be entered only once."""
    made: list[str] = []

    @contextmanager
    def context() -> Iterator[None]:
        made.append("enter")
        yield
        made.append("leave")

    step = options.around(Step(lambda _: made.append("step"), lambda _: None, lambda _: None), context)
    for _ in range(2):
        step.optimizer(step.backward(step.forward(())))
    assert made == ["enter", "step", "leave"] * 2


def test_a_check_sees_the_batch_and_the_loss() -> None:
    """A check gets the loss of every batch as a function of its input, in double precision, and it holds."""
    training = built()
    seen: list[tuple[float, torch.Tensor]] = []

    def check(function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor], **_: object) -> bool:
        seen.append((function(*inputs).item(), inputs[0]))
        return True

    step = options.checked(training.step, training.network, mse, check)
    (fields,) = batches(1)
    loss = step.forward(fields)
    step.backward(loss)
    assert seen[0][0] == pytest.approx(loss.item(), rel=1e-5)
    assert (seen[0][1].dtype, seen[0][1].requires_grad) == (torch.float64, True)
    assert torch.equal(seen[0][1].float(), fields[0])
    tiny = (torch.rand(1, 3, 3, 3), torch.rand(1, 3, 3, 3))
    real = lambda *given, **said: said.pop("raise_exception") or torch.autograd.gradcheck(*given, **said)  # noqa: E731
    step = options.checked(training.step, training.network, mse, real)
    step.backward(step.forward(tiny))


@given(st.integers(1, 300))
def test_sizes(patch: int) -> None:
    """The whole image first, then each smaller by 8 pixels than the one before, four at most, none below 8 pixels."""
    found = network.sizes(patch)
    assert found[0] == patch
    assert found == [patch - 8 * k for k in range(len(found))]
    assert 1 <= len(found) <= 4
    assert min(found[1:], default=8) >= 8
    assert len(found) == 4 or found[-1] < 16


def test_shapes_vary_and_samples_do_not() -> None:
    """Every step sees all samples of its batch, cut from their upper left, in a cycle of sizes; labels stay whole."""
    seen: list[Fields] = []
    step = network.varied(Step(seen.append, lambda _: None, lambda _: None), 24)
    source, labels = torch.rand(5, 3, 24, 24), torch.arange(5)
    for _ in range(4):
        step.forward((source, labels, torch.zeros(5, 9)))
    assert [tuple(fields[0].shape) for fields in seen] == [(5, 3, size, size) for size in (24, 16, 8, 24)]
    assert all(torch.equal(fields[0], source[..., : fields[0].shape[2], : fields[0].shape[3]]) for fields in seen)
    assert all(fields[0].is_contiguous() for fields in seen)
    assert all(torch.equal(fields[1], labels) for fields in seen)


@pytest.mark.parametrize("wanted", [True, False])
def test_cudnn_benchmark_is_set_either_way(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA the autotuner is set to what the cell says before the network is made, whatever it was."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not wanted)
    found: list[bool] = []

    def bare(_job: Job, _device: torch.device) -> torch.nn.Module:
        found.append(torch.backends.cudnn.benchmark)
        return torch.nn.Conv2d(3, 3, 1)

    monkeypatch.setattr(network, "bare", bare)
    steps.build(trial(cudnn_benchmark=wanted), torch.device("cuda"), lambda model: model)
    assert found == [wanted]


def test_float32_is_pytorchs_default_whatever_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA convolutions may use TF32 and products of matrices may not, by the old names and by the new ones."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    found: list[tuple[object, ...]] = []

    def bare(_job: Job, _device: torch.device) -> torch.nn.Module:
        found.append((matmul.allow_tf32, matmul.fp32_precision, cudnn.allow_tf32, cudnn.conv.fp32_precision))
        return torch.nn.Conv2d(3, 3, 1)

    monkeypatch.setattr(network, "bare", bare)
    try:
        matmul.allow_tf32, cudnn.allow_tf32 = True, False
        steps.build(trial(), torch.device("cuda"), lambda model: model)
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
    assert found == [(False, "ieee", True, "tf32")]


def test_functional_gelu_is_the_written_one() -> None:
    """PyTorch's own function and the one that is written out give the same losses and weights within 1e-6."""
    found, expected = trained(model="pointwise", fusion="functional"), trained(model="pointwise")
    assert found[1] == pytest.approx(expected[1], rel=1e-6)
    assert torch.allclose(found[0], expected[0], atol=1e-6)


def test_a_wrapper_goes_around_the_network_that_is_trained() -> None:
    """What replicates a network gets it before the optimizer does, and after it has become a script."""
    for fusion in ("eager", "script"):
        given: list[torch.nn.Module] = []

        def wrap(model: torch.nn.Module, given: list[torch.nn.Module] = given) -> torch.nn.Module:
            given.append(model)
            return torch.nn.Sequential(model)

        training = steps.build(trial(fusion=fusion), CPU, wrap)
        assert isinstance(given[0], torch.jit.ScriptModule) == (fusion == "script")
        assert {id(p) for p in training.optimizer.param_groups[0]["params"]} == {
            id(p) for p in training.network.parameters()
        }
        assert type(training.step.forward.__self__._model) is torch.nn.Sequential


@pytest.mark.slow
def test_axes_together() -> None:
    """A step with many axes at once still trains all of its samples: its loss falls."""
    many = {"amp": "bf16", "memory_format": "channels_last", "zero_grad": "memset", "sync_every_step": True}
    training = built(**many, norm="batch", conv_bias=False, debug="anomaly")
    row = stages.stages_of(training.step)
    (fields,) = batches(1)
    losses = []
    for _ in range(8):
        state: Any = fields
        for stage in row:
            state = stage.run(state)
            losses += [state.item()] if stage.phase == "forward" else []
    assert losses[-1] < losses[0]
    assert training.overflows is not None
    assert training.overflows.count() == 0


def test_a_batch_reaches_the_first_stage_whole() -> None:
    """On a CPU a row of stages takes a batch of the loader, and what rides along is ignored."""
    row = stages.build(trial(amp="bf16", vary_shapes=True), CPU)
    source, target = batches(1)[0]
    state: Any = Batch((source, target, torch.zeros(3, 9)), b"")
    for stage in row:
        state = stage.run(state)
    assert state is None
