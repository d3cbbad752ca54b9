"""ResNet-18 with 37 classes."""

from __future__ import annotations

import pytest
import torch

from feedrate.workloads.models.resnet18 import build

pytestmark = pytest.mark.usefixtures("one_thread")


def test_parameters() -> None:
    """It has the number of parameters that its file says."""
    assert sum(parameter.numel() for parameter in build().parameters()) == 11_195_493


def test_scores() -> None:
    """Every image gets a score for each of the 37 breeds; gradients reach the first layer."""
    model = build()
    scores = model(torch.rand(2, 3, 64, 64))
    assert scores.shape == (2, 37)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
