"""The host as the parent of a trial sees it: cheap enough to look ten times a second.

Processes are read through their CPU clocks (nanoseconds), the machine through files that stay open: reading one again
takes some ten microseconds. In a container ``/proc`` shows the host, which is what disturbs a measurement.

``/proc/stat`` counts in ticks of 10 ms: over a window of 0.6 s one tick is 1.7 %, and what differs by less than a few
per cent of a core is the same. Idle time is exact on kernels that stop the tick of an idle core (NO_HZ), and busy time
is taken as a share of all time: that is nearer the truth than the sum of the busy columns, which a timer samples.

Workers are all descendants of the training process, looked up at most every ``REFRESH_NS``: one that lives for less can
be missed by ``sample``, and is in ``counters`` once it was waited for.

Sources: proc(5), and the kernel's ``accounting/psi``, ``admin-guide/cgroup-v2`` and ``scheduler/sched-bwc``.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from feedrate.machine import identity
from feedrate.machine.probes import procfs

REFRESH_NS = 500_000_000
"""How old the list of workers may become before ``sample`` looks it up again, in nanoseconds."""
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


@dataclass(frozen=True, slots=True)
class TrialCounters:
    """Counters of the machine and of a trial's processes that only grow; None is what could not be seen."""

    machine: MachineCounters
    main_cpu_ns: int | None
    """CPU of the training process, all threads."""
    workers_cpu_ns: int | None
    """CPU of every descendant seen so far, those that died included."""
    counts: Mapping[str, int | None]
    """By column: context switches, major faults and bytes read from storage, of the training process and every
    descendant seen so far."""


class HostProbe(AbstractContextManager["HostProbe"]):
    """Watches the machine and one trial at a time from the trial's parent. Close it, or use it in a ``with``."""

    def __init__(self, proc: Path = Path("/proc"), groups: Iterable[Path] | None = None) -> None:
        """Open the machine's files; a file that cannot be opened makes its columns None."""
        names = ("stat", "loadavg", "meminfo", *(f"pressure/{name}" for name in PRESSURES))
        self._files = {name: file for name in names if (file := _opened(proc / name)) is not None}
        folders = dict.fromkeys(identity.groups("cpu") if groups is None else groups)
        stats = [_opened(folder / "cpu.stat") for folder in folders]
        self._quotas = [file for file in stats if file is not None]
        cores = re.findall(rb"^cpu\d", procfs.read(str(proc / "stat"), 1 << 20) or b"", re.MULTILINE)
        self.cpus: int | None = len(cores) or None
        """Cores whose time ``ticks`` sums; None where they are not listed."""
        self._ticks: Ticks | None = None
        self._trial: _Trial | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the machine's files; later samples hold None for its columns."""
        for file in (*self._files.values(), *self._quotas):
            os.close(file)
        self._files, self._quotas = {}, []

    def sample(self, trial_pid: int | None) -> dict[str, float | int | None]:
        """Look once, at the machine and at the training process if there is one: the telemetry columns of the host.

        CPU shares are those since the sample before.
        """
        before, self._ticks = self._ticks, self._read_ticks()
        shares = cpu_shares(before, self._ticks)
        main, workers = (None, None) if trial_pid is None else self._processes(trial_pid)
        return {
            "cpu_util_pct": shares["cpu_util_pct"],
            "main_cpu_pct": main,
            "workers_cpu_pct": workers,
            "steal_pct": shares["steal_pct"],
            "load_1m": self.load_1m(),
            "mem_available_bytes": self._mem_available_bytes(),
        }

    def machine(self) -> MachineCounters:
        """Read the counters of the machine, this process' own CPU time included."""
        throttled = [match for file in self._quotas if (match := _THROTTLED.search(_read(file)))]
        stopped_ns = [int(match[2]) * (1000 if match[1] else 1) for match in throttled]
        return MachineCounters(
            ticks=self._read_ticks(),
            t_ns=time.perf_counter_ns(),
            own_cpu_ns=time.process_time_ns(),
            cpus=self.cpus,
            pressure_us={name: self._pressure_us(name) for name in PRESSURES},
            throttled_ns=sum(stopped_ns) if stopped_ns else None,
        )

    def load_1m(self) -> float | None:
        """Load average over a minute."""
        load = self._text("loadavg").split(b" ", 1)[0]
        return float(load) if load else None

    def counters(self, trial_pid: int) -> TrialCounters:
        """Read what ``difference`` needs; the counters of the trial are None when its process is gone."""
        trial = self._watch(trial_pid)
        trial.look_up(time.perf_counter_ns())
        pids = [trial_pid, *trial.workers]
        machine = self.machine()
        main = procfs.cpu_ns(trial_pid)
        living = [(pid, used) for pid in trial.workers if (used := procfs.cpu_ns(pid)) is not None]
        for pid, used in living:
            trial.cpu.add(pid, used)
        # What a worker used after it was last seen is known once it was waited for, in whole ticks.
        usage = [procfs.usage(pid) for pid in pids]
        workers = max(trial.cpu.total, sum(used for _, used in living) + sum(reaped for _, reaped in usage))
        read = [_counts(pid, faults) for pid, (faults, _) in zip(pids, usage, strict=True)]
        for name, values in (item for counts in read for item in counts.items()):
            for key, value in values.items():
                trial.counts[name].add(key, value)
        counts = {name: trial.counts[name].total if values else None for name, values in read[0].items()}
        return TrialCounters(machine, main, None if main is None else workers, counts)

    def _watch(self, trial_pid: int) -> _Trial:
        if self._trial is None or self._trial.pid != trial_pid:
            self._trial = _Trial(trial_pid)
        return self._trial

    def _processes(self, trial_pid: int) -> tuple[float | None, float | None]:
        """CPU % of main process and workers since the sample before."""
        trial, now, main = self._watch(trial_pid), time.perf_counter_ns(), procfs.cpu_ns(trial_pid)
        if now - trial.looked_up_ns >= REFRESH_NS:
            trial.look_up(now)
        before, trial.sampled = trial.sampled, None if main is None else (now, main)
        elapsed = now - before[0] if before else 0
        last, trial.sampled_workers = trial.sampled_workers, {}
        workers = 0
        for pid in trial.workers:
            if (used := procfs.cpu_ns(pid)) is not None:
                trial.cpu.add(pid, used)
                trial.sampled_workers[pid] = used
                # Most of a newcomer's life may lie before the last sample: it had about one core at most since then.
                workers += used - last[pid] if pid in last else min(used, elapsed)
        if main is None or before is None:
            return None, None
        return percent(main - before[1], elapsed), percent(workers, elapsed)

    def _read_ticks(self) -> Ticks | None:
        """CPU time of all cores; None where ``/proc/stat`` cannot be read or understood."""
        words = self._text("stat").split(b"\n", 1)[0].split()[1:9]
        if len(words) < 4 or not all(word.isdigit() for word in words):
            return None
        fields = [int(word) for word in words]
        steal = fields[7] if len(fields) > 7 else None
        return Ticks(busy=sum(fields) - sum(fields[3:5]) - (steal or 0), steal=steal, total=sum(fields))

    def _mem_available_bytes(self) -> int | None:
        available = self._text("meminfo").partition(b"MemAvailable:")[2].split(b"kB", 1)[0].strip()
        return int(available) * 1024 if available.isdigit() else None

    def _pressure_us(self, name: str) -> int | None:
        some, _, amount = self._text(f"pressure/{name}").split(b"\n", 1)[0].partition(b"total=")
        return int(amount) if some.startswith(b"some ") and amount.isdigit() else None

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


@dataclass(slots=True)
class Tally:
    """Sum of a counter over processes (or threads) that come and go: what the dead have added stays."""

    total: int = 0
    last: dict[int, int] = field(default_factory=dict)

    def add(self, key: int, value: int) -> None:
        """Take one counter in; a smaller value than before means that the id was reused."""
        before = self.last.get(key, 0)
        self.total += value - before if value >= before else value
        self.last[key] = value


def _counts(pid: int, faults: int | None) -> dict[str, dict[int, int]]:
    """Counters of a process by column: of each of its threads, or its own; empty for what is withheld."""
    switches, reads = procfs.switches(pid) or {}, procfs.read_bytes(pid)
    return {
        "voluntary_switches": {thread: voluntary for thread, (voluntary, _) in switches.items()},
        "involuntary_switches": {thread: involuntary for thread, (_, involuntary) in switches.items()},
        "major_faults": {} if faults is None else {pid: faults},
        "read_bytes": {} if reads is None else {pid: reads},
    }


@dataclass(slots=True)
class _Trial:
    """What the probe remembers of the trial that it watches."""

    pid: int
    workers: list[int] = field(default_factory=list)
    looked_up_ns: int = -REFRESH_NS
    sampled: tuple[int, int] | None = None
    """(clock, CPU of the main process) of the last sample."""
    sampled_workers: dict[int, int] = field(default_factory=dict)
    """CPU of each worker at the last sample."""
    cpu: Tally = field(default_factory=Tally)
    """Of the workers."""
    counts: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    """By column."""

    def look_up(self, now: int) -> None:
        self.workers = procfs.descendants(self.pid)
        self.looked_up_ns = now


def percent(numerator: int | None, whole: int | None) -> float | None:
    """``part`` of ``whole`` in percent; None when either is, or when there is no whole."""
    return None if numerator is None or whole is None or whole <= 0 else 100.0 * max(numerator, 0) / whole


def grew(before: int | None, after: int | None) -> int | None:
    """By how much a counter grew; None when a reading is missing."""
    return None if before is None or after is None else after - before


def _share(numerator: int | None, whole: int | None) -> float | None:
    """As ``percent``, held to 100: time spent waiting for I/O may shrink (proc(5)), clocks differ by a little."""
    share = percent(numerator, whole)
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
    stalled_us = grew(before.pressure_us[name], after.pressure_us[name])
    return _share(None if stalled_us is None else 1000 * stalled_us, after.t_ns - before.t_ns)


def disturbance(before: MachineCounters, after: MachineCounters, ours_ns: int | None) -> dict[str, float | int | None]:
    """Tell what others did to the machine between two readings.

    Foreign CPU is what is left of the machine's busy time without the trial and without the process that looks:
    everybody else's, and the kernel's own, which works for the trial too (interrupts, writing back, reclaiming).
    """
    shares, elapsed = cpu_shares(before.ticks, after.ticks), after.t_ns - before.t_ns
    ours = None if ours_ns is None else percent(ours_ns + after.own_cpu_ns - before.own_cpu_ns, elapsed)
    busy = None if shares["cpu_util_pct"] is None or after.cpus is None else shares["cpu_util_pct"] * after.cpus
    return {
        "cpu_util_pct": shares["cpu_util_pct"],
        "foreign_cpu_pct": None if busy is None or ours is None else max(busy - ours, 0.0),
        "steal_pct": shares["steal_pct"],
        "throttled_ns": grew(before.throttled_ns, after.throttled_ns),
        "io_pressure_pct": pressure_pct(before, after, "io"),
        "memory_pressure_pct": pressure_pct(before, after, "memory"),
    }


def difference(before: TrialCounters, after: TrialCounters) -> dict[str, float | int | None]:
    """Turn the counters at a window's start and end into the trials columns of the host."""
    elapsed = after.machine.t_ns - before.machine.t_ns
    main, workers = grew(before.main_cpu_ns, after.main_cpu_ns), grew(before.workers_cpu_ns, after.workers_cpu_ns)
    ours = None if main is None or workers is None else main + workers
    return {
        **disturbance(before.machine, after.machine, ours),
        "main_cpu_pct": percent(main, elapsed),
        "workers_cpu_pct": percent(workers, elapsed),
        **{name: grew(count, after.counts[name]) for name, count in before.counts.items()},
    }
