"""Windows of tokens: alike on every machine, frequent as Zipf's law says, and read as they were packed."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from feedrate.workloads import DataSpec, tokens
from feedrate.workloads.models import transformer

pytestmark = pytest.mark.usefixtures("one_thread")


GOLDEN = "5dadb49cfdb0d318"


def windows(count: int) -> list[np.ndarray]:
    """Samples as they are packed."""
    return [window for (window,) in tokens.samples(DataSpec("tokens", count, 64, 1)).samples]


def test_golden() -> None:
    """The first windows are the published ones; sample i is the same in every set."""
    first = windows(3)
    assert [(window.shape, window.dtype) for window in first] == [((1, 1, 2050), np.uint8)] * 3
    assert hashlib.sha256(b"".join(map(bytes, first))).hexdigest()[:16] == GOLDEN
    assert all(map(np.array_equal, first, windows(5)[:3]))


def test_a_model_sees_no_token_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of a place do not depend on what follows it; the parameters are those that its file says."""
    with torch.device("meta"):  # counted without being made
        assert sum(parameter.numel() for parameter in transformer.build().parameters()) == 30_339_456
    monkeypatch.setattr(transformer, "VOCABULARY", 500)
    torch.manual_seed(1)
    model = transformer.build()
    read, target = (ids[None, :64] % 500 for ids in tokens.transform((windows(1)[0],)))
    other = read.clone()
    other[0, 40:] = 7
    scores, others = model(read), model(other)
    assert scores.shape == (1, 64, 500)
    assert torch.allclose(scores[:, :40], others[:, :40], atol=1e-4)
    assert not torch.allclose(scores[:, 40:], others[:, 40:], atol=1e-2)
    loss = tokens.loss(scores, target)
    assert loss.item() == pytest.approx(np.log(500), rel=0.05)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
