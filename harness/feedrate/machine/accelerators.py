"""Accelerators that PyTorch here is built for and feedrate does not measure, found without importing torch.

Under ROCm ``torch.cuda`` is an AMD GPU, of which NVML knows nothing; an XPU is no CUDA device at all. A run would fail
at its first look, or be one of the CPU beside a GPU that its user means.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import NamedTuple


class _Kind(NamedTuple):
    """Accelerators that a build of PyTorch is for."""

    platform: str
    gpu: str
    variable: str
    """What ``torch/version.py`` calls the platform's version; in versions that lack it ``__version__`` ends in it."""
    vendor: str
    """Of PCI, as ``/sys/class/drm/*/device/vendor`` says it."""
    nodes: str
    """What a program opens to compute."""


_KINDS = (
    _Kind("ROCm", "an AMD GPU", "hip|rocm", "0x1002", "dev/kfd"),
    _Kind("XPU", "an Intel GPU", "xpu", "0x8086", "dev/dri/renderD*"),
)


def unmeasured(root: Path = Path("/"), torch: Path | None = None) -> str | None:
    """Say which accelerator PyTorch is built for and can reach, where feedrate does not measure it; None else."""
    if torch is None and (spec := importlib.util.find_spec("torch")) and spec.origin:
        torch = Path(spec.origin).parent
    if torch is None or not (version := torch / "version.py").is_file():
        return None
    text = version.read_text(encoding="utf-8", errors="replace")
    vendors = {file.read_text(encoding="ascii").strip() for file in root.glob("sys/class/drm/*/device/vendor")}
    for kind in _KINDS:
        build = re.search(rf"(?m)^(?:{kind.variable})\b[^=\n]*=\s*'|^__version__ = '[^']*\+(?:{kind.variable})", text)
        if build and any(root.glob(kind.nodes)) and kind.vendor in vendors:
            return f"PyTorch here is built for {kind.platform}, and there is {kind.gpu}"
    return None
