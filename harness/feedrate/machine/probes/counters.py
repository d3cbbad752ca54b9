"""Counters of a machine and of a trial's processes, and what two readings of them say about the window in between.

``/proc/stat`` counts in ticks of 10 ms: over a window of 0.6 s one tick is 1.7 % of one core, and what differs by less
than a few per cent of a core is the same. Idle time is exact on kernels that stop the tick of an idle core (NO_HZ), and
busy time is taken as a share of all time: that is nearer the truth than the sum of the busy columns, which a timer
samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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


@dataclass(frozen=True, slots=True)
class TrialCounters:
    """Counters of the machine and of a trial's processes that only grow; None is what could not be seen."""

    machine: MachineCounters
    main_cpu_ns: int | None
    """CPU of the training process, all threads."""
    workers_cpu_ns: int | None
    """CPU of every descendant seen so far, those that died included."""
    voluntary_switches: int | None
    """Of the training process and every descendant seen so far."""
    involuntary_switches: int | None
    """Of the training process and every descendant seen so far."""
    major_faults: int | None
    """Of the training process and every descendant seen so far."""
    read_bytes: int | None
    """Bytes read from storage by the training process and every descendant seen so far."""


@dataclass(slots=True)
class Tally:
    """Sum of a counter over processes (or threads) that come and go: what the dead have added stays."""

    total: int = 0
    last: dict[int, int] = field(default_factory=dict)

    def add(self, key: int, value: int) -> int:
        """Take one counter in and return by how much the sum grew; a smaller value means that the id was reused."""
        before = self.last.get(key, 0)
        growth = value - before if value >= before else value
        self.last[key] = value
        self.total += growth
        return growth


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


def total(tally: Tally, pids: Sequence[int], counter: Callable[[int], int | None]) -> int | None:
    """Take a counter of several processes into a tally."""
    values = [counter(pid) for pid in pids]
    if values[0] is None:
        return None
    for pid, value in zip(pids, values, strict=True):
        if value is not None:
            tally.add(pid, value)
    return tally.total


def difference(before: TrialCounters, after: TrialCounters) -> dict[str, float | int | None]:
    """Turn the counters at a window's start and end into the trials columns of the host."""
    elapsed = after.machine.t_ns - before.machine.t_ns
    main, workers = grew(before.main_cpu_ns, after.main_cpu_ns), grew(before.workers_cpu_ns, after.workers_cpu_ns)
    ours = None if main is None or workers is None else main + workers
    return {
        **disturbance(before.machine, after.machine, ours),
        "main_cpu_pct": percent(main, elapsed),
        "workers_cpu_pct": percent(workers, elapsed),
        "voluntary_switches": grew(before.voluntary_switches, after.voluntary_switches),
        "involuntary_switches": grew(before.involuntary_switches, after.involuntary_switches),
        "major_faults": grew(before.major_faults, after.major_faults),
        "read_bytes": grew(before.read_bytes, after.read_bytes),
    }
