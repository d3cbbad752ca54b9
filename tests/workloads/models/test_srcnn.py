"""The network that is trained."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from feedrate.workloads.models import srcnn

pytestmark = pytest.mark.usefixtures("one_thread")


def seeded(**knobs: object) -> nn.Module:
    torch.manual_seed(5)
    return srcnn.build(**knobs)


def kinds(model: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in model.children()]


def test_parameters_and_shape() -> None:
    """SRCNN 9-5-5 in RGB has 69,251 parameters, and its output has its input's shape."""
    model = srcnn.build()
    assert sum(parameter.numel() for parameter in model.parameters()) == 69_251
    assert model(torch.zeros(2, 3, 16, 20)).shape == (2, 3, 16, 20)
    assert kinds(model) == ["Conv2d", "ReLU", "Conv2d", "ReLU", "Conv2d"]


def test_a_norm_follows_every_convolution_but_the_last() -> None:
    """With norm = batch there are two; without conv_bias only the last convolution keeps its bias."""
    model = seeded(norm="batch", conv_bias=False)
    assert kinds(model) == ["Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d", "ReLU", "Conv2d"]
    convolutions = [layer for layer in model.children() if isinstance(layer, nn.Conv2d)]
    assert [layer.bias is None for layer in convolutions] == [True, True, False]
    assert all(layer.bias is not None for layer in seeded(norm="batch").children() if isinstance(layer, nn.Conv2d))


def test_a_knob_changes_no_other_weight() -> None:
    """With equal seeds networks differ in what the knob adds or takes, and in nothing else."""
    plain, norm, bare = (seeded(), seeded(norm="batch"), seeded(norm="batch", conv_bias=False))
    weights = [[layer.weight for layer in model.children() if isinstance(layer, nn.Conv2d)] for model in (plain, norm)]
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    left = dict(bare.named_parameters())
    assert all(torch.equal(left[name], value) for name, value in norm.named_parameters() if name in left)
    assert {name for name, _ in norm.named_parameters()} - set(left) == {"0.bias", "3.bias"}


def test_a_bias_before_a_norm_changes_nothing() -> None:
    """In training both networks are one function, whatever the bias: equal outputs, and equal gradients of weights."""
    with_bias, without = seeded(norm="batch").double(), seeded(norm="batch", conv_bias=False).double()
    with torch.no_grad():
        for layer in with_bias.children():
            if isinstance(layer, nn.Conv2d) and layer is not list(with_bias.children())[-1]:
                assert layer.bias is not None
                layer.bias += torch.randn_like(layer.bias)
    images = torch.rand(4, 3, 12, 12, dtype=torch.float64)
    found, expected = without(images), with_bias(images)
    assert torch.allclose(found, expected, atol=1e-12)
    for output in (found, expected):
        output.square().mean().backward()
    other = dict(with_bias.named_parameters())
    assert all(torch.allclose(v.grad, other[name].grad, atol=1e-12) for name, v in without.named_parameters())
    assert all(other[name].grad.abs().max() < 1e-12 for name in ("0.bias", "3.bias"))


def test_the_same_function_step_by_step() -> None:
    """Trained side by side in double precision, with and without the bias, both give the same losses."""
    images, targets = torch.rand(2, 4, 3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    losses = []
    for model in (seeded(norm="batch").double(), seeded(norm="batch", conv_bias=False).double()):
        trained = copy.deepcopy(model)
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
        losses.append([])
        for _ in range(3):
            loss = nn.functional.mse_loss(trained(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0][-1] < losses[0][0]
    assert torch.allclose(*(torch.tensor(found) for found in losses), rtol=1e-9)
