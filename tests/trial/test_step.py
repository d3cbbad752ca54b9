"""The training step: both sides of every axis do the same work, and what is switched off is not there."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from feedrate.loaders import Fields
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


def test_the_plain_step_is_plain() -> None:
    """With every axis at its default a step is three methods of one object, with nothing around or hooked into them."""
    training = built()
    plain: PlainStep = training.step.forward.__self__
    assert type(plain) is PlainStep
    assert training.step == Step(plain.forward, plain.backward, plain.optimize)
    assert plain._model is training.network
    assert not plain.adam._optimizer_step_post_hooks


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


@pytest.mark.parametrize(("scaler", "expected"), [(True, 1), (False, 3)])
def test_steps_that_overflow_are_counted(scaler: bool, expected: int) -> None:
    """The second of four steps overflows: a scaler skips it and goes on; without one it spoils every later step."""
    torch.manual_seed(1)
    real = PlainStep(torch.nn.Conv2d(3, 3, 1), mse)
    overflows = steps.OverflowCount(real.adam)
    step = (steps.with_scaler(real, CPU) if scaler else real.step()).noting(overflows.note)
    for number, (source, target) in enumerate(batches(4)):
        run(step, (source * (1e30 if number == 1 else 1.0), target))
    assert overflows.count() == expected
    overflows.reset()
    assert overflows.count() == 0


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
    """Before the network is made: the autotuner as the cell says; TF32 for convolutions, not for matrix products."""
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


def noting(seen: list[Any]) -> Step:
    """A step that notes what its forward pass gets, and its updates."""

    def forward(fields: Any) -> Any:
        seen.append(fields)
        return fields[0].sum()

    return Step(forward, lambda _: None, lambda _: seen.append("updated"))


@pytest.mark.parametrize(("where", "source"), [("host", "cpu"), ("device", "meta")])
def test_a_random_tensor_changes_no_input(where: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides hand on an input that is equal bit for bit, with the target and the payload as they were."""
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
