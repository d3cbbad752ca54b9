"""What Linux tells about the whole machine, and what two readings of it say about the window in between.

In a container ``/proc`` shows the host, which is what disturbs a measurement. What cannot be read is None, never 0.
``/proc/stat`` counts in ticks of 10 ms: over a window of 0.6 s one tick is 1.7 % of one core, and what differs by less
than a few per cent of a core is the same. Idle time is exact on kernels that stop the tick of an idle core (NO_HZ), and
busy time is taken as a share of all time: that is nearer the truth than the sum of the busy columns, which a timer
samples. Sources: proc(5), and the kernel's ``accounting/psi``, ``admin-guide/cgroup-v2`` and ``scheduler/sched-bwc``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from feedrate.machine import identity
from feedrate.machine.probes.procfs import read

PRESSURES = ("cpu", "io", "memory")
"""Resources whose pressure (PSI) the kernel measures."""


class Ticks(NamedTuple):
    """CPU time of all cores since the machine started, in ticks."""

    busy: int
    """Neither idle nor waiting for I/O nor stolen."""
    steal: int | None
    """Wanted by this machine while the hypervisor ran others; None on kernels that do not count it."""
    total: int


@dataclass(frozen=True, slots=True)
class MachineCounters:
    """Counters of the whole machine that only grow; None is what could not be seen."""

    ticks: Ticks | None
    t_ns: int
    """``perf_counter_ns`` when they were read."""
    own_cpu_ns: int
    """CPU of the process that looks, all threads."""
    cpus: int | None
    """Cores whose time ``ticks`` sums."""
    pressure_us: Mapping[str, int | None]
    """For each of ``PRESSURES`` the time in which at least one task waited for it, in microseconds."""
    throttled_ns: int | None
    """Time for which CPU quotas stopped the control groups of this process."""


_THROTTLED = re.compile(rb"^throttled_(?:(usec)|time) (\d+)$", re.MULTILINE)
"""In ``cpu.stat`` of a control group: version 2 counts microseconds, version 1 nanoseconds."""


class System:
    """The machine's own files, held open: reading one again takes some ten microseconds. Close it when done."""

    __slots__ = ("_files", "_quotas", "cpus")

    def __init__(self, proc: Path = Path("/proc"), groups: Iterable[Path] | None = None) -> None:
        """Open the files."""
        names = ("stat", "loadavg", "meminfo", *(f"pressure/{name}" for name in PRESSURES))
        self._files = {name: file for name in names if (file := _opened(proc / name)) is not None}
        found = identity.groups("cpu") if groups is None else groups
        stats = [_opened(folder / "cpu.stat") for folder in dict.fromkeys(found)]
        self._quotas = [file for file in stats if file is not None]
        cores = re.findall(rb"^cpu\d", read(str(proc / "stat"), 1 << 20) or b"", re.MULTILINE)
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


def percent(part: int | None, whole: int | None) -> float | None:
    """``part`` of ``whole`` in percent; None when either is, or when there is no whole."""
    return None if part is None or whole is None or whole <= 0 else 100.0 * max(part, 0) / whole


def grew(before: int | None, after: int | None) -> int | None:
    """By how much a counter grew; None when a reading is missing."""
    return None if before is None or after is None else after - before


def _share(part: int | None, whole: int | None) -> float | None:
    """As ``percent``, held to 100: time spent waiting for I/O may shrink (proc(5)), clocks differ by a little."""
    share = percent(part, whole)
    return None if share is None else min(share, 100.0)


def cpu_shares(before: Ticks | None, after: Ticks | None) -> dict[str, float | None]:
    """Tell what became of all cores' time between two readings."""
    if before is None or after is None:
        return {"cpu_util_pct": None, "steal_pct": None}
    total = after.total - before.total
    return {
        "cpu_util_pct": _share(after.busy - before.busy, total),
        "steal_pct": _share(grew(before.steal, after.steal), total),
    }


def pressure_pct(before: MachineCounters, after: MachineCounters, name: str) -> float | None:
    """Share of the time in which at least one task of the machine waited for one of ``PRESSURES``, in percent."""
    grown = grew(before.pressure_us[name], after.pressure_us[name])
    return _share(None if grown is None else 1000 * grown, after.t_ns - before.t_ns)


def disturbance(before: MachineCounters, after: MachineCounters, ours_ns: int | None) -> dict[str, float | int | None]:
    """Tell what others did to the machine between two readings.

    Foreign CPU is what is left of the machine's busy time without the trial and without the process that looks:
    everybody else's, and the kernel's own, which works for the trial too (interrupts, writing back, reclaiming).
    """
    shares, elapsed = cpu_shares(before.ticks, after.ticks), after.t_ns - before.t_ns
    known = None if ours_ns is None else percent(ours_ns + after.own_cpu_ns - before.own_cpu_ns, elapsed)
    busy = None if shares["cpu_util_pct"] is None or after.cpus is None else shares["cpu_util_pct"] * after.cpus
    return {
        "cpu_util_pct": shares["cpu_util_pct"],
        "foreign_cpu_pct": None if busy is None or known is None else max(busy - known, 0.0),
        "steal_pct": shares["steal_pct"],
        "throttled_ns": grew(before.throttled_ns, after.throttled_ns),
        "io_pressure_pct": pressure_pct(before, after, "io"),
        "memory_pressure_pct": pressure_pct(before, after, "memory"),
    }
