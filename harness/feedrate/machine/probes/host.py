"""The host as the parent of a trial sees it: cheap enough to look ten times a second.

Processes are read through their CPU clocks (nanoseconds), the machine through files that stay open. ``/proc/stat``
counts in ticks of 10 ms: over a sample of 100 ms the machine's busy share has steps of 10 % of one core. Workers are
all descendants of the training process; the list is looked up at most every ``REFRESH_NS``, so a worker that lives for
less can be missed by ``sample``, and is in ``counters`` once it was waited for. What is withheld is None, never 0.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from feedrate.machine.probes import procfs
from feedrate.machine.probes.system import MachineCounters, System, Ticks, cpu_shares, disturbance, grew, percent

REFRESH_NS = 500_000_000
"""How old the list of workers may become before ``sample`` looks it up again, in nanoseconds."""


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


class HostProbe:
    """Watches the machine and one trial at a time from the trial's parent. Close it, or use it in a ``with``."""

    __slots__ = ("_system", "_ticks", "_trial")

    def __init__(self, system: System | None = None) -> None:
        """Open the machine's files; a file that cannot be opened makes its columns None."""
        self._system = system or System()
        self._ticks: Ticks | None = None
        self._trial: _Trial | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the machine's files; later samples hold None for its columns."""
        self._system.close()

    def sample(self, trial_pid: int | None) -> dict[str, float | int | None]:
        """Look once, at the machine and at the training process if there is one: the telemetry columns of the host.

        CPU shares are those since the sample before: None in the first, and for a process that is gone.
        """
        before, self._ticks = self._ticks, self._system.ticks()
        shares = cpu_shares(before, self._ticks)
        main, workers = (None, None) if trial_pid is None else self._processes(trial_pid)
        return {
            "cpu_util_pct": shares["cpu_util_pct"],
            "main_cpu_pct": main,
            "workers_cpu_pct": workers,
            "steal_pct": shares["steal_pct"],
            "load_1m": self._system.load_1m(),
            "mem_available_bytes": self._system.mem_available_bytes(),
        }

    def machine(self) -> MachineCounters:
        """Read the counters of the machine alone, while there is no trial."""
        return self._system.counters()

    def load_1m(self) -> float | None:
        """Load average over a minute."""
        return self._system.load_1m()

    def counters(self, trial_pid: int) -> TrialCounters:
        """Read what ``difference`` needs, at the start and at the end of a window.

        The counters of the trial are None when its process is gone.
        """
        trial = self._watch(trial_pid)
        trial.look_up(time.perf_counter_ns())
        pids = [trial_pid, *trial.workers]
        machine = self._system.counters()
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
        grown = 0
        for pid in trial.workers:
            if (used := procfs.cpu_ns(pid)) is not None:
                trial.cpu.add(pid, used)
                trial.sampled_workers[pid] = used
                # Most of a newcomer's life may lie before the last sample: it had about one core at most since then.
                grown += used - last[pid] if pid in last else min(used, elapsed)
        if main is None or before is None:
            return None, None
        return percent(main - before[1], elapsed), percent(grown, elapsed)
