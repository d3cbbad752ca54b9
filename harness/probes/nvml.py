"""NVML itself: loading it only where a driver is, and finding the GPU that CUDA will see."""

from __future__ import annotations

import ctypes
import os
from itertools import takewhile
from types import ModuleType
from typing import Any


def load() -> ModuleType | None:
    """Return ``pynvml``, initialised; None without a driver.

    Importing pynvml takes 20 ms, asking the dynamic loader for NVML's library 0.2 ms: that is asked first.
    """
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        import pynvml
    except (ImportError, OSError):
        return None
    nvml: ModuleType = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def hidden() -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides every GPU: set, and empty or -1."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")


def visible(nvml: ModuleType) -> Any | None:
    """Find the first GPU that CUDA will see, by CUDA_VISIBLE_DEVICES.

    Args:
        nvml: what ``load`` returned.

    Returns:
        NVML's handle of the GPU; None when there is none, or the first entry names none.
    """
    return _named(nvml, os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0])


def count(nvml: ModuleType) -> int:
    """Count the GPUs that CUDA will see: those that CUDA_VISIBLE_DEVICES names before its first entry that names none.

    Args:
        nvml: what ``load`` returned.
    """
    entries = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        names = [str(index) for index in range(nvml.nvmlDeviceGetCount())] if entries is None else entries.split(",")
    except nvml.NVMLError:
        return 0
    return len(list(takewhile(lambda name: _named(nvml, name) is not None, names)))


def _named(nvml: ModuleType, entry: str) -> Any | None:
    """Find the GPU that an entry of CUDA_VISIBLE_DEVICES names.

    An index counts as NVML counts, by bus address; CUDA does so too when all GPUs are alike or when CUDA_DEVICE_ORDER
    is PCI_BUS_ID. An identifier may be shortened, as CUDA allows, to what only one GPU begins with.
    """
    first = entry.strip()
    try:
        number = nvml.nvmlDeviceGetCount()
        if first.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(first)) if int(first) < number else None
        if first.startswith("MIG-"):
            return nvml.nvmlDeviceGetHandleByUUID(first)
        handles = (
            [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(number)] if first.startswith("GPU-") else []
        )
        matching = [handle for handle in handles if nvml.nvmlDeviceGetUUID(handle).startswith(first)]
    except nvml.NVMLError:
        return None
    return matching[0] if len(matching) == 1 else None


def installed() -> list[tuple[str, int]]:
    """List the (name, memory in bytes) of all GPUs of the machine, whatever CUDA_VISIBLE_DEVICES hides."""
    nvml = load()
    if nvml is None:
        return []
    found: list[tuple[str, int]] = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            found.append((str(nvml.nvmlDeviceGetName(handle)), int(nvml.nvmlDeviceGetMemoryInfo(handle).total)))
    except nvml.NVMLError:
        pass  # a GPU that does not answer: what was found before it stands
    finally:
        nvml.nvmlShutdown()
    return found
