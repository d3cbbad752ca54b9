"""A chain of pointwise operations."""

from __future__ import annotations

import torch
from torch.nn import functional

from feedrate.workloads.models import pointwise


def test_gelu_is_written_out() -> None:
    """One operation at a time gives PyTorch's GELU within 1e-6, on both tails too, in values and gradients."""
    x = torch.linspace(-8, 8, 1001, requires_grad=True)
    written, known = pointwise.gelu(x), functional.gelu(x)
    assert torch.allclose(written, known, atol=1e-6)
    (a,), (b,) = (torch.autograd.grad(y.sum(), x) for y in (written, known))
    assert torch.allclose(a, b, atol=1e-6)


def test_both_ways_are_one_network() -> None:
    """With equal seeds the written and the fused network have equal weights and outputs within 1e-6."""
    models = []
    for fusion in ("eager", "functional"):
        torch.manual_seed(3)
        models.append(pointwise.build(fusion=fusion))
    images = torch.rand(2, 3, 20, 24)
    found, expected = (model(images) for model in models)
    assert found.shape == images.shape
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.equal(found, expected), "nothing was exchanged"


def test_few_operations_are_convolutions() -> None:
    """Written out, all but the two convolutions of a forward pass are pointwise: seven for each link."""
    graph = torch.fx.symbolic_trace(pointwise.build()).graph
    called = [node for node in graph.nodes if node.op in ("call_function", "call_module")]
    convolutions = [node for node in called if node.op == "call_module"]
    assert len(convolutions) == 2
    assert len(called) - len(convolutions) == 7 * pointwise.LINKS
