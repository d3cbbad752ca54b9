"""A look at a device and its software, once, before anything is measured: what feedrate assumes of CUDA, asked.

A fact that cannot be had is told in words, and stops no other. It is no benchmark: nothing is repeated enough for an
interval. Nothing in it identifies the machine.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from feedrate.machine.identity import describe, environment, scrub, software
from feedrate.machine.probes import gpu, procfs
from feedrate.schema.errors import EnvironmentFault

Facts = dict[str, Any]
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvcuvid.so.1", "libnvjpeg.so.13", "libnvjpeg.so.12")
"""Of driver and toolkit. Without libnvcuvid torchvision decodes JPEG files one by one on the device."""


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - began) / 1e9


def _versions() -> Facts:
    cuda = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}  # type: ignore[no-untyped-call]
    return software().model_dump(exclude_none=True) | environment() | cuda


def _machine() -> Facts:
    """Cores and their threads, memory, shared memory; and which libraries of the driver can be loaded."""
    os.close(os.pidfd_open(os.getpid()))  # a sweep waits for its trials with such descriptors
    machine = describe(gpu.installed())
    about = {"machine_id": machine.machine_id, "shm_free_bytes": procfs.free_shared_memory()}
    return machine.model_dump(exclude_none=True) | about | {"libraries": [*filter(_loadable, LIBRARIES)]}


def _loadable(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _device() -> Facts:
    """The first device, and what its context takes: every trial pays that before it begins."""
    seconds = _seconds(torch.cuda.synchronize)
    free, total = torch.cuda.mem_get_info()
    names = ("name", "major", "minor", "multi_processor_count")
    properties = {name: getattr(torch.cuda.get_device_properties(0), name) for name in names}
    return properties | {"context_seconds": seconds, "memory_bytes": total, "free_bytes": free}


def _memory() -> Facts:
    """Names of the counters that allocators have in this version."""
    return {"device": sorted(torch.cuda.memory_stats()), "pinned": sorted(torch.cuda.host_memory_stats())}


def _nvml() -> Facts:
    """What the driver answers, how long an answer takes, and whether it watches the device that CUDA has."""
    opened = gpu.GpuProbe.open()
    if opened is None:
        raise EnvironmentFault("NVML finds no GPU that CUDA will see")
    with opened as probe:
        follows = probe.follow(str(torch.cuda.get_device_properties(0).uuid))
        seconds, computing = _seconds(probe.sample), probe.computing()
        answers = {"facts": probe.facts(), "energy_j": probe.energy_j(), "computing": computing and len(computing)}
        return {"follows": follows, "sample": probe.sample(), "sample_seconds": seconds, **answers}


_ANYWHERE = {"versions": _versions, "machine": _machine}
_ON_CUDA = {"device": _device, "memory": _memory, "nvml": _nvml}
"""The context first, as it is first only once."""


def look() -> dict[str, Facts]:
    """Look at everything: what each look saw, ``{"problem": …}`` where it saw nothing, and how soon CUDA was found."""
    looks = {name: _look(function) for name, function in _ANYWHERE.items()}
    seconds = _seconds(torch.cuda.is_available)
    available = torch.cuda.is_available()
    looks["cuda"] = {"available": available, "seconds": seconds}
    for name, function in _ON_CUDA.items():
        looks[name] = _look(function) if available else {"problem": "PyTorch finds no CUDA device"}
    return looks


def _look(function: Callable[[], Facts]) -> Facts:
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - whatever a driver raises is what there is to tell
        return {"problem": scrub(f"{type(error).__name__}: {error}")}


def main(path: Path) -> int:
    """Look, write it as JSON and print it; the exit status is 1 where some of a CUDA device was not seen."""
    looks = look()
    text = json.dumps(looks, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")
    problems = [name for name, facts in looks.items() if "problem" in facts]
    last = f"{len(looks) - len(problems)} of {len(looks)} looks saw something"
    sys.stdout.write(f"{text}\n{last}{': not ' if problems else ''}{', '.join(problems)}\n")
    return int(looks["cuda"]["available"] and bool(problems))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
