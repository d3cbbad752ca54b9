"""Large linear layers."""

from __future__ import annotations

import torch

from feedrate.workloads.models import mlp


def test_parameters() -> None:
    """It has the number of parameters that its file says, nearly all of them in weights of linear layers."""
    model = mlp.build()
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_541_248
    assert sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2) > 11_500_000


def test_every_size_goes_through_the_same_weights() -> None:
    """Images of any size come out in their size, smaller and larger than what the layers see; all weights learn."""
    model = mlp.build()
    for size in (4, 16, 33):
        images = torch.rand(2, 3, size, size)
        assert model(images).shape == images.shape
    model(torch.rand(2, 3, 20, 24)).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_what_the_layers_make_is_added() -> None:
    """The network sharpens: with its last layer silent it gives the image back."""
    model = mlp.build()
    images = torch.rand(1, 3, 24, 24)
    with torch.no_grad():
        model.layers[-1].weight.zero_()
        model.layers[-1].bias.zero_()
        assert torch.equal(model(images), images)
