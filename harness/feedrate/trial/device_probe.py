"""A look at a device and its software, once, before anything is measured: what feedrate assumes of CUDA, asked.

Each fact is found by itself, in an order in which none spoils another (the context and the first step are first only
once); one that cannot be found is told in words, and stops no other. Without a CUDA device most are such words. It is
no benchmark: nothing is repeated enough for an interval. Nothing in it identifies the machine.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from feedrate.machine.identity import environment, scrub, software
from feedrate.machine.probes.gpu import GpuProbe
from feedrate.schema.errors import EnvironmentFault

BATCH = (128, 3, 64, 64)
"""Of the step that is timed: 6.3 MB, SRCNN's first layer."""
STEPS = 20
EVENTS = 2_000
SPIN_CYCLES = (2_000_000, 20_000_000)
"""One and about ten milliseconds of a GPU at 2 GHz."""
JPEG_LIBRARIES = ("libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so")

Facts = dict[str, Any]


def _seconds(work: Callable[[], Any]) -> float:
    """Wall clock of some work and of what it left the device to do."""
    began = time.perf_counter_ns()
    work()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - began) / 1e9


def _versions() -> Facts:
    return {
        **software().model_dump(exclude_none=True),
        **environment(),
        "kernel": scrub(platform.release()),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
    }


def _pidfd() -> Facts:
    """Whether the kernel hands out the descriptors that a sweep waits for its trials with."""
    os.close(os.pidfd_open(os.getpid()))
    return {"works": True}


def _context() -> Facts:
    """What every trial pays before it begins."""
    return {"seconds": _seconds(torch.cuda.init)}


def _device() -> Facts:
    found = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {
        "name": found.name,
        "capability": f"{found.major}.{found.minor}",
        "multiprocessors": found.multi_processor_count,
        "memory_bytes": total,
        "free_bytes": free,
        "devices": torch.cuda.device_count(),
    }


def _steps() -> Facts:
    """The first steps of a convolution, whose libraries are loaded and whose algorithms are chosen, and later ones."""
    model = nn.Conv2d(3, 64, 9, padding=4).cuda()
    batch = torch.rand(BATCH, device="cuda")
    seconds = [_seconds(lambda: model(batch).mean().backward()) for _ in range(STEPS)]
    return {"seconds": seconds}


def _events() -> Facts:
    """What the host pays to record an event, looking the stream up each time and passing it."""
    stream = torch.cuda.current_stream()
    events: list[torch.cuda.Event] = [torch.cuda.Event(enable_timing=True) for _ in range(EVENTS)]  # type: ignore[no-untyped-call]

    def each_ns(record: Callable[[torch.cuda.Event], None]) -> float:
        began = time.perf_counter_ns()
        for event in events:
            record(event)
        return (time.perf_counter_ns() - began) / EVENTS

    each_ns(lambda event: event.record(stream))  # makes them: PyTorch creates an event when it is first recorded
    found = {"looked_up_ns": each_ns(lambda event: event.record()), "passed_ns": each_ns(lambda e: e.record(stream))}
    torch.cuda.synchronize()
    return found


def _spin() -> Facts:
    """How long the device spins for some cycles: a cost of known length for the device's clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    found = {}
    for cycles in SPIN_CYCLES:
        begin.record()
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        end.record()
        end.synchronize()
        found[str(cycles)] = begin.elapsed_time(end)
    return {"milliseconds": found}


def _memory() -> Facts:
    """Names of the counters that allocators have in this version."""
    return {"device": sorted(torch.cuda.memory_stats()), "pinned": sorted(torch.cuda.host_memory_stats())}


def _nvml() -> Facts:
    """What the driver answers, how long an answer takes, and whether it watches the device that CUDA has."""
    opened = GpuProbe.open()
    if opened is None:
        raise EnvironmentFault("NVML finds no GPU that CUDA will see")
    with opened as probe:
        follows = probe.follow(str(torch.cuda.get_device_properties(0).uuid))
        began = time.perf_counter_ns()
        sample = probe.sample()
        seconds = (time.perf_counter_ns() - began) / 1e9
        computing = probe.computing()
        return {
            "follows": follows,
            "facts": probe.facts(),
            "sample": sample,
            "sample_seconds": seconds,
            "energy_j": probe.energy_j(),
            "computing": None if computing is None else len(computing),
        }


def _jpeg() -> Facts:
    """Which of nvJPEG's libraries can be loaded, and how long torchvision takes to decode one image on the device."""
    from PIL import Image
    from torchvision.io import decode_jpeg

    written = io.BytesIO()
    Image.effect_noise((500, 375), 64).convert("RGB").save(written, "JPEG")
    encoded = torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8)
    seconds = [_seconds(lambda: decode_jpeg([encoded], device="cuda")) for _ in range(3)]
    return {"libraries": list(_loaded(JPEG_LIBRARIES)), "seconds": seconds}


def _loaded(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        yield name


_ANYWHERE: dict[str, Callable[[], Facts]] = {"versions": _versions, "pidfd": _pidfd}
_ON_CUDA: dict[str, Callable[[], Facts]] = {
    "context": _context,
    "device": _device,
    "steps": _steps,
    "events": _events,
    "spin": _spin,
    "memory": _memory,
    "nvml": _nvml,
    "jpeg": _jpeg,
}
"""In an order in which no look spoils another."""


def look() -> dict[str, Facts]:
    """Look at everything.

    Returns:
        What each look found, by its name; ``{"problem": …}`` where it found nothing. ``cuda`` says whether there is a
        device, and after how many seconds the driver said so.
    """
    found = {name: _found(each) for name, each in _ANYWHERE.items()}
    began = time.perf_counter_ns()
    available = torch.cuda.is_available()
    found["cuda"] = {"available": available, "seconds": (time.perf_counter_ns() - began) / 1e9}
    for name, each in _ON_CUDA.items():
        found[name] = _found(each) if available else {"problem": "PyTorch finds no CUDA device"}
    return found


def _found(each: Callable[[], Facts]) -> Facts:
    try:
        return each()
    except Exception as error:  # noqa: BLE001 - whatever a driver raises is what there is to tell
        return {"problem": scrub(f"{type(error).__name__}: {error}")}


def main(path: Path) -> int:
    """Look, write it as JSON and print it; the exit status is 1 where some of a CUDA device was not found."""
    found = look()
    text = json.dumps(found, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")
    problems = [name for name, facts in found.items() if "problem" in facts]
    last = f"{len(found) - len(problems)} of {len(found)} looks found something"
    sys.stdout.write(f"{text}\n{last}{': not ' if problems else ''}{', '.join(problems)}\n")
    return int(found["cuda"]["available"] and bool(problems))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
