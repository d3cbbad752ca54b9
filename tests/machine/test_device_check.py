"""The plan asks the driver, the child asks PyTorch; they must agree."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from feedrate.schema.errors import EnvironmentFault
from feedrate.sweep import sweep
from feedrate.sweep.launcher import Answer


def confirm(planned: str, found: str) -> SimpleNamespace:
    """Confirm a plan's device against what a child found."""
    local = SimpleNamespace(plan=SimpleNamespace(place=SimpleNamespace(device=planned)))
    running = SimpleNamespace(local=local, gpu=None, runtime={})
    facts = {"device": found, "cuda": None, "cudnn": None, "torch_threads": 2}
    template = SimpleNamespace(run=lambda *_, **__: Answer("ok", result=facts))
    sweep._confirm_device(running, template)
    return running


@pytest.mark.parametrize(("planned", "found"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_disagreement_is_an_error(planned: str, found: str) -> None:
    """A GPU that PyTorch cannot use, or that NVML does not name, stops the sweep, which says what to do."""
    with pytest.raises(EnvironmentFault, match=rf"says {planned}, PyTorch says {found}.* CUDA_VISIBLE_DEVICES= to"):
        confirm(planned, found)


def test_agreement_goes_on_and_is_recorded() -> None:
    """Where both agree nothing is raised, and what PyTorch said of itself is kept for the manifest."""
    assert confirm("cpu", "cpu").runtime["torch_threads"] == 2
