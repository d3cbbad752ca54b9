"""The networks that are trained."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest
import torch

from feedrate.schema.axes import BY_NAME
from feedrate.schema.plugins import declared, names
from feedrate.workloads.models import mlp, pointwise, resnet18, resnet50, srcnn, vit_s16

pytestmark = pytest.mark.usefixtures("one_thread")
PACKAGE = "feedrate.workloads.models"


@pytest.mark.parametrize("name", names(PACKAGE))
def test_knobs_are_what_build_takes(name: str) -> None:
    """A literal names the axes that build() takes, by keyword, each with its axis' default."""
    knobs = declared(PACKAGE, name, "KNOBS")
    taken = dict(inspect.signature(importlib.import_module(f"{PACKAGE}.{name}").build).parameters)
    assert ("classes" in taken) == (declared(PACKAGE, name, "TASK") == "classification")
    taken.pop("classes", None)
    assert tuple(taken) == knobs
    assert all(taken[knob].kind is inspect.Parameter.KEYWORD_ONLY for knob in knobs)
    assert all(taken[knob].default == BY_NAME[knob].default for knob in knobs)


@pytest.mark.parametrize(
    ("model", "parameters", "shape"),
    [
        (srcnn, 69_251, (2, 3, 64, 80)),
        (mlp, 11_541_248, (2, 3, 64, 80)),
        (pointwise, 883, (2, 3, 64, 80)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_parameters_and_shape(model: object, parameters: int, shape: tuple[int, ...]) -> None:
    """Each has the parameters that its file says, and an image's shape or 37 scores come out; all weights learn."""
    network = model.build()
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    output = network(torch.rand(2, 3, 64, 80))
    assert output.shape == shape
    output.square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("model", "knobs", "parameters"),
    [
        (resnet18, {}, 11_689_512),
        pytest.param(resnet50, {}, 25_557_032, marks=pytest.mark.slow),
        pytest.param(vit_s16, {"patch_size": 224}, 22_050_664, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_classifiers_have_as_many_parameters_as_published(
    model: ModuleType, knobs: dict[str, int], parameters: int
) -> None:
    """With 1,000 classes; with fewer, as many scores come out of small images, and all weights learn."""
    assert sum(parameter.numel() for parameter in model.build(1000, **knobs).parameters()) == parameters
    network = model.build(37)
    output = network(torch.rand(2, 3, 64, 64))
    assert output.shape == (2, 37)
    torch.nn.functional.cross_entropy(output, torch.tensor([3, 36])).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning")
def test_the_chain_can_be_scripted() -> None:
    """TorchScript, which a claim puts to the test, compiles the chain to the same numbers."""
    chain, x = pointwise.build(), torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(torch.jit.script(chain)(x), chain(x))


def test_both_ways_are_one_network() -> None:
    """With equal seeds the written and the fused network have equal weights and outputs within 1e-6."""
    models = []
    for fusion in ("eager", "functional"):
        torch.manual_seed(3)
        models.append(pointwise.build(fusion=fusion))
    images = torch.rand(2, 3, 20, 24)
    written, fused = (model(images) for model in models)
    assert torch.allclose(written, fused, atol=1e-6)
    assert not torch.equal(written, fused), "nothing was exchanged"
