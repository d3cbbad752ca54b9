"""The network that is trained."""

from __future__ import annotations

import torch

from harness.workloads.models import srcnn


def test_parameters_and_shape() -> None:
    """SRCNN 9-5-5 in RGB has 69,251 parameters, and its output has its input's shape."""
    model = srcnn.build()
    assert sum(parameter.numel() for parameter in model.parameters()) == 69_251
    assert model(torch.zeros(2, 3, 16, 20)).shape == (2, 3, 16, 20)
