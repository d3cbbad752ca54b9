"""Counters of a trial's processes, and what two readings of them say about the window in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TrialCounters:
    """Counters that only grow; None is what could not be seen."""

    t_ns: int
    """``perf_counter_ns`` when they were read."""
    busy_ticks: int | None
    """Machine: all cores, ticks neither idle nor waiting for I/O; time stolen by a hypervisor counts as busy."""
    total_ticks: int | None
    """Machine: all cores, all ticks."""
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


def busy_share(before: tuple[int | None, int | None], after: tuple[int | None, int | None]) -> float | None:
    """Busy share of all cores, in percent, from (busy, total) ticks; held to 100, as iowait may shrink (proc(5))."""
    share = percent(grew(before[0], after[0]), grew(before[1], after[1]))
    return None if share is None else min(share, 100.0)


def total(tally: Tally, pids: Sequence[int], counter: Callable[[int], int | None]) -> int | None:
    """Take a counter of several processes into a tally.

    Args:
        tally: the sum so far.
        pids: the training process first, then its descendants.
        counter: reads the counter of one process.

    Returns:
        The sum; None when the counter of the training process cannot be seen. A descendant whose counter cannot be
        seen while the training process' can is dying, and is left out.
    """
    values = [counter(pid) for pid in pids]
    if values[0] is None:
        return None
    for pid, value in zip(pids, values, strict=True):
        if value is not None:
            tally.add(pid, value)
    return tally.total


def difference(before: TrialCounters, after: TrialCounters) -> dict[str, float | int | None]:
    """Turn the counters at a window's start and end into the trials columns of the host.

    Args:
        before: read at the start of the window.
        after: read at its end, by the same probe.

    Returns:
        ``cpu_util_pct`` (of all cores), ``main_cpu_pct`` and ``workers_cpu_pct`` (100 is one core),
        ``voluntary_switches``, ``involuntary_switches``, ``major_faults`` and ``read_bytes``; each None when one of
        its two readings is.
    """
    elapsed = after.t_ns - before.t_ns
    return {
        "cpu_util_pct": busy_share((before.busy_ticks, before.total_ticks), (after.busy_ticks, after.total_ticks)),
        "main_cpu_pct": percent(grew(before.main_cpu_ns, after.main_cpu_ns), elapsed),
        "workers_cpu_pct": percent(grew(before.workers_cpu_ns, after.workers_cpu_ns), elapsed),
        "voluntary_switches": grew(before.voluntary_switches, after.voluntary_switches),
        "involuntary_switches": grew(before.involuntary_switches, after.involuntary_switches),
        "major_faults": grew(before.major_faults, after.major_faults),
        "read_bytes": grew(before.read_bytes, after.read_bytes),
    }
