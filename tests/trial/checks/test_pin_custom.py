"""Which batches PyTorch pins, by its own code; pinning itself is pretended where there is no CUDA device."""

from __future__ import annotations

import pytest
import torch

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding, pin_custom
from feedrate.trial.checks.pin_custom import Custom, Pinnable
from feedrate.trial.job import Job


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors remember that they were pinned, and PyTorch believes in an accelerator; what it walks through is real."""

    def pin(tensor: torch.Tensor, device: object = None) -> torch.Tensor:
        copy = tensor.clone()
        copy._pretended = True
        return copy

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: getattr(tensor, "_pretended", False))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))


def finding() -> Finding:
    return pin_custom.check(Job("trial", device="cuda", cell={"mode": "check", "check": "pin_custom"}))


@pytest.mark.usefixtures("pretended")
def test_a_custom_class_is_left_unpinned() -> None:
    """Tensors, dictionaries, tuples and a class with pin_memory() come pinned; the class without it does not."""
    evidence = (
        "Pinned came: tensor, dictionary, tuple, a class with pin_memory(); left in pageable memory: a class without "
        "pin_memory()."
    )
    assert finding() == Finding(True, 1.0, evidence)


@pytest.mark.usefixtures("pretended")
def test_a_class_with_the_method_flips_the_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same class, given pin_memory(), is pinned like all others: the fact is gone."""
    monkeypatch.setattr(Custom, "pin_memory", Pinnable.pin_memory, raising=False)
    assert not finding().fact
    assert finding().value == 0
    assert "left in pageable memory: none" in finding().evidence


def test_nothing_pinned_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even a tensor is pinned (no CUDA), the check could not be made: an error, not a finding."""
    monkeypatch.setattr(pin_custom, "_is_pinned", lambda *_: False)
    with pytest.raises(TrialError, match="expected a CUDA device"):
        finding()
