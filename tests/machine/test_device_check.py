"""The plan asks the driver, the child asks PyTorch; they must agree."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from feedrate.machine import identity
from feedrate.schema.errors import EnvironmentFault
from feedrate.share import parquet
from feedrate.sweep import preparation
from feedrate.sweep.launcher import Answer


def confirm(planned: str, found: str, probe: SimpleNamespace | None = None) -> SimpleNamespace:
    """Confirm a plan's device against what a child found."""
    local = SimpleNamespace(plan=SimpleNamespace(host=SimpleNamespace(device=planned)))
    running = SimpleNamespace(local=local, gpu=probe, runtime={})
    facts = {"device": found, "cuda": None, "cudnn": None, "torch_threads": 2, "uuid": "u" if found == "cuda" else None}
    template = SimpleNamespace(run=lambda *_, **__: Answer("ok", result=facts))
    preparation.confirm_device(running, template)
    return running


@pytest.mark.parametrize(("planned", "found"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_disagreement_is_an_error(planned: str, found: str) -> None:
    """A GPU that PyTorch cannot use, or that NVML does not name, stops the sweep, which says what to do."""
    with pytest.raises(EnvironmentFault, match=rf"says {planned}, PyTorch says {found}.* CUDA_VISIBLE_DEVICES= to"):
        confirm(planned, found)


def test_agreement_goes_on_and_is_recorded() -> None:
    """Where both agree nothing is raised, and what PyTorch said of itself is kept for the manifest."""
    assert confirm("cpu", "cpu").runtime["torch_threads"] == 2


def test_another_gpu_than_the_watched_one_is_an_error() -> None:
    """Where NVML does not list the GPU that PyTorch computes on, nothing is measured, and what to do is said."""
    listed = {"u": True, "other": False}
    probe = SimpleNamespace(
        follow=lambda uuid: listed[uuid], facts=lambda: {"name": "NVIDIA Example", "memory_bytes": 1}
    )
    assert confirm("cuda", "cuda", probe).runtime["name"] == "NVIDIA Example"
    listed["u"] = False
    with pytest.raises(EnvironmentFault, match=r"none that the driver .* lists; expected .* CUDA_VISIBLE_DEVICES"):
        confirm("cuda", "cuda", probe)


def test_variables_that_change_cuda_are_recorded_in_known_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by its name as it is set; of a value of no known form only that there is one; unset ones not at all."""
    given = {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,roundup_power2_divisions:[256:1,512:2]",
        "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync",
        "CUDA_MODULE_LOADING": "EAGER",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    recorded = {name.lower(): value for name, value in given.items()}
    assert confirm("cpu", "cpu").runtime.items() >= recorded.items()
    assert "nvidia_tf32_override" not in confirm("cpu", "cpu").runtime
    assert all(re.fullmatch(parquet.KEY, name) for name in recorded), "or no validator takes the run"
    for name in given:
        monkeypatch.setenv(name, "/home/alice/key")
    assert {confirm("cpu", "cpu").runtime[name] for name in recorded} == {identity.UNKNOWN_FORM}
