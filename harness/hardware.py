"""Reading what Linux tells about processor, memory and control groups; None for what it does not tell."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_HYPERVISOR_FLAG = re.compile(r"^flags\s*:.*\bhypervisor\b", re.MULTILINE)
_UNLIMITED = 1 << 60
"""Control groups of version 1 write an absurd number of bytes where there is no limit."""


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_model() -> str:
    """Name of the processor as it calls itself; where it has none (Arm), implementer and part number."""
    facts = dict(re.findall(r"^([\w ]+?)\s*:[ \t]*(\S.*)$", _text("/proc/cpuinfo"), re.MULTILINE))
    if name := facts.get("model name") or facts.get("Model") or facts.get("cpu"):
        return str(name).strip()
    parts = [facts[label] for label in ("CPU implementer", "CPU part") if label in facts]
    return " ".join([platform.machine(), *parts])


def usable_cores() -> tuple[int, ...]:
    """Numbers of the hardware threads that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def physical_cores(threads: Sequence[int]) -> int | None:
    """Count the cores that hardware threads belong to, threads of one core once."""
    folders = [f"/sys/devices/system/cpu/cpu{thread}/topology" for thread in threads]
    places = {(_text(f"{folder}/physical_package_id"), _text(f"{folder}/core_id")) for folder in folders}
    return None if ("", "") in places else len(places)


def groups(controller: str) -> Iterator[Path]:
    """Folders of this process' control groups for a controller, innermost first, both versions' layouts."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup", controllers and controller)
        group = root / path.strip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def cpu_quota() -> float | None:
    """Cores' worth of CPU time that the control groups allow, the tightest of them; None without a limit."""
    found: list[float] = []
    for folder in groups("cpu"):
        words = _text(folder / "cpu.max").split()
        if not words:
            words = [_text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()]
        if all(word.isdigit() for word in words) and int(words[1]) > 0:
            found.append(round(int(words[0]) / int(words[1]), 2))
    return min(found, default=None)


def memory_limit() -> int | None:
    """Bytes of memory that the control groups allow, the tightest of them; None without a limit."""
    texts = [
        _text(folder / name).strip() for folder in groups("memory") for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min((int(text) for text in texts if text.isdigit() and int(text) < _UNLIMITED), default=None)


def virtualised() -> bool | None:
    """Whether a hypervisor says that it is there; None where that could not be told (Arm without /sys/hypervisor)."""
    if _text("/sys/hypervisor/type").strip() or _HYPERVISOR_FLAG.search(_text("/proc/cpuinfo")):
        return True
    return False if platform.machine() in ("x86_64", "i686") and _text("/proc/cpuinfo") else None
