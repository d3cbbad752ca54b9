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
    ("model", "knobs", "parameters"),
    [
        (srcnn, {}, 69_251),
        (mlp, {}, 11_541_248),
        (pointwise, {}, 883),
        (resnet18, {}, 11_689_512),
        pytest.param(resnet50, {}, 25_557_032, marks=pytest.mark.slow),
        pytest.param(vit_s16, {"patch_size": 224}, 22_050_664, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_parameters_and_shape(model: ModuleType, knobs: dict[str, int], parameters: int) -> None:
    """As many parameters as published, classifiers' with 1,000 classes; all weights learn from small images."""
    classes = model.TASK == "classification"
    with torch.device("meta"):  # counted without being made
        whole = model.build(1000, **knobs) if classes else model.build()
    assert sum(parameter.numel() for parameter in whole.parameters()) == parameters
    network = model.build(37) if classes else model.build()
    output = network(torch.rand(2, 3, 64, 64))
    assert output.shape == ((2, 37) if classes else (2, 3, 64, 64))
    (output - 1).square().mean().backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    assert all(gradient is not None for gradient in gradients)
    assert classes or all(gradient.any() for gradient in gradients), "scores may begin at weights of zero"


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
