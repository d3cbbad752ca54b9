"""What Linux tells about the whole machine: CPU time, pressure, load, memory, and quotas that stopped this process.

Files are opened once and read again from their start: a reading costs some ten microseconds. In a container ``/proc``
shows the host, which is what disturbs a measurement. A file that is not there, or that a container withholds, makes
its columns None, never 0. Sources: proc(5), and the kernel's ``accounting/psi``, ``admin-guide/cgroup-v2`` and
``scheduler/sched-bwc``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from harness import hardware
from harness.probes import procfs
from harness.probes.counters import PRESSURES, MachineCounters, Ticks

_THROTTLED = re.compile(rb"^throttled_(?:(usec)|time) (\d+)$", re.MULTILINE)
"""In ``cpu.stat`` of a control group: version 2 counts microseconds, version 1 nanoseconds."""


class System:
    """The machine's own files, held open. Close it when done."""

    __slots__ = ("_files", "_quotas", "cpus")

    def __init__(self, proc: Path = Path("/proc"), groups: Iterable[Path] | None = None) -> None:
        """Open the files.

        Args:
            proc: where procfs is mounted.
            groups: folders of the control groups that may limit this process' CPU time, in the layout of either
                version; by default its own and those above it, as far as they can be seen.
        """
        names = ("stat", "loadavg", "meminfo", *(f"pressure/{name}" for name in PRESSURES))
        self._files = {name: file for name in names if (file := _opened(proc / name)) is not None}
        found = hardware.groups("cpu") if groups is None else groups
        stats = [_opened(folder / "cpu.stat") for folder in dict.fromkeys(found)]
        self._quotas = [file for file in stats if file is not None]
        cores = re.findall(rb"^cpu\d", procfs.read(str(proc / "stat"), 1 << 20) or b"", re.MULTILINE)
        self.cpus: int | None = len(cores) or None
        """Cores whose time ``ticks`` sums; None where they are not listed."""

    def close(self) -> None:
        """Close the files; later readings are None."""
        while self._files:
            os.close(self._files.popitem()[1])
        while self._quotas:
            os.close(self._quotas.pop())

    def counters(self) -> MachineCounters:
        """Read everything that only grows, this process' own CPU time included."""
        return MachineCounters(
            ticks=self.ticks(),
            t_ns=time.perf_counter_ns(),
            own_cpu_ns=time.process_time_ns(),
            cpus=self.cpus,
            pressure_us={name: self._pressure_us(name) for name in PRESSURES},
            throttled_ns=self._throttled_ns(),
        )

    def ticks(self) -> Ticks | None:
        """CPU time of all cores; None where ``/proc/stat`` cannot be read or understood."""
        words = self._text("stat").split(b"\n", 1)[0].split()[1:9]
        if len(words) < 4 or not all(word.isdigit() for word in words):
            return None
        fields = [int(word) for word in words]
        steal = fields[7] if len(fields) > 7 else None
        return Ticks(busy=sum(fields) - sum(fields[3:5]) - (steal or 0), steal=steal, total=sum(fields))

    def load_1m(self) -> float | None:
        """Load average over a minute."""
        load = self._text("loadavg").split(b" ", 1)[0]
        return float(load) if load else None

    def mem_available_bytes(self) -> int | None:
        """Memory that the kernel says is available."""
        available = self._text("meminfo").partition(b"MemAvailable:")[2].split(b"kB", 1)[0].strip()
        return int(available) * 1024 if available.isdigit() else None

    def _pressure_us(self, name: str) -> int | None:
        """How long at least one task of the machine has waited for a resource, in microseconds."""
        some, _, amount = self._text(f"pressure/{name}").split(b"\n", 1)[0].partition(b"total=")
        return int(amount) if some.startswith(b"some ") and amount.isdigit() else None

    def _throttled_ns(self) -> int | None:
        """How long quotas have stopped the control groups, summed over groups and cores, in nanoseconds."""
        found = [match for file in self._quotas if (match := _THROTTLED.search(_read(file)))]
        return sum(int(match[2]) * (1000 if match[1] else 1) for match in found) if found else None

    def _text(self, name: str) -> bytes:
        return _read(self._files[name]) if name in self._files else b""


def _opened(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return None


def _read(file: int) -> bytes:
    """The start of an open file; nothing where it cannot be read."""
    try:
        return os.pread(file, 4096, 0)
    except OSError:
        return b""
