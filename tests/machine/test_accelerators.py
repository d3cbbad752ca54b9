"""Accelerators that feedrate does not measure are named from planted files, and never taken for a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from feedrate.machine import accelerators
from feedrate.machine.probes import gpu
from feedrate.plan import request
from feedrate.plan.options import SweepOptions
from feedrate.schema.errors import EnvironmentFault
from feedrate.schema.plugins import ROOT

CUDA = (
    "__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\nhip: Optional[str] = None\nxpu: Optional[str] = None\n"
)
ROCM = (
    "__version__ = '2.11.0'\ncuda: Optional[str] = None\nhip: Optional[str] = '7.0.51831'\nxpu: Optional[str] = None\n"
)
OLD_ROCM = "__version__ = '2.11.0+rocm6.4'\ncuda = None\nhip = None\n"
XPU = "__version__ = '2.11.0+xpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
AMD, INTEL, NVIDIA = "0x1002", "0x8086", "0x10de"


def plant(folder: Path, version: str, vendor: str, *nodes: str) -> tuple[Path, Path]:
    """A machine's files and PyTorch's."""
    torch = folder / "torch"
    card = folder / "sys/class/drm/card0/device"
    for path in (torch, card):
        path.mkdir(parents=True)
    (torch / "version.py").write_text(version)
    (card / "vendor").write_text(f"{vendor}\n")
    for node in nodes:
        (folder / node).parent.mkdir(parents=True, exist_ok=True)
        (folder / node).touch()
    return folder, torch


@pytest.mark.parametrize(
    ("version", "vendor", "nodes", "said"),
    [
        (ROCM, AMD, ("dev/kfd", "dev/dri/renderD128"), "built for ROCm, and there is an AMD GPU"),
        (OLD_ROCM, AMD, ("dev/kfd",), "built for ROCm, and there is an AMD GPU"),
        (XPU, INTEL, ("dev/dri/renderD128",), "built for XPU, and there is an Intel GPU"),
        (CUDA, AMD, ("dev/kfd", "dev/dri/renderD128"), None),  # PyTorch would compute on the CPU
        (CUDA, INTEL, ("dev/dri/renderD128",), None),  # as in every laptop
        (ROCM, AMD, (), None),  # a container that was not given it
        (XPU, NVIDIA, ("dev/dri/renderD128",), None),
    ],
)
def test_what_pytorch_would_use_is_named(
    version: str, vendor: str, nodes: tuple[str, ...], said: str | None, tmp_path: Path
) -> None:
    """An AMD or Intel GPU counts where PyTorch is built for it and a program can open it, and only there."""
    found = accelerators.unmeasured(*plant(tmp_path, version, vendor, *nodes))
    assert found is None if said is None else said in str(found)


def test_the_cpu_is_measured_beside_another_accelerator_only_if_somebody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is refused with what was found and what to do; once CUDA_VISIBLE_DEVICES is empty it is the CPU's."""
    root, torch = plant(tmp_path, ROCM, AMD, "dev/kfd")
    looked = accelerators.unmeasured
    monkeypatch.setattr(accelerators, "unmeasured", lambda: looked(root, torch))
    monkeypatch.setattr(gpu, "device", lambda: "cpu")
    options = SweepOptions(matrix=ROOT / "matrix.yaml", data_root=tmp_path, results=tmp_path / "results")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(
        EnvironmentFault, match=r"an AMD GPU; .* measures NVIDIA GPUs and CPUs. Set CUDA_VISIBLE_DEVICES="
    ):
        request.make(options)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert request.make(options).plan.host.device == "cpu"
