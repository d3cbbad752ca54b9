"""What counters add up to: shares of a machine and of the processes on it, and no number where one is missing."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from feedrate.machine.probes import procfs
from feedrate.machine.probes.host import HostProbe, Tally, TrialCounters, difference
from feedrate.machine.probes.procfs import memory
from feedrate.machine.probes.system import PRESSURES, MachineCounters, System, Ticks
from feedrate.schema.columns import TELEMETRY, TRIALS

NOISE = ("foreign_cpu_pct", "steal_pct", "throttled_ns", "io_pressure_pct", "memory_pressure_pct")


def counters(
    ticks: Ticks, *, t_ns: int = 0, own: int = 0, main: int = 0, workers: int = 0, cpus: int = 4
) -> TrialCounters:
    """Counters that nobody read."""
    machine = MachineCounters(ticks, t_ns, own, cpus, dict.fromkeys(PRESSURES, 0), 0)
    return TrialCounters(machine, main, workers, {})


def test_what_is_withheld_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without /proc/stat, /proc/PID/io and smaps gets None in those columns and numbers in the others."""
    read = procfs.read
    hidden = ("/io", "/smaps_rollup")
    monkeypatch.setattr(procfs, "read", lambda path, size=16384: None if path.endswith(hidden) else read(path, size))
    (tmp_path / "loadavg").write_text("0.50 0.40 0.30 1/90 1000\n")
    with HostProbe(System(tmp_path, [])) as probe:
        sample = probe.sample(os.getpid())
        columns = difference(probe.counters(os.getpid()), probe.counters(os.getpid()))
    assert sample["cpu_util_pct"] is None
    assert sample["mem_available_bytes"] is None
    assert sample["load_1m"] == 0.5
    assert columns["read_bytes"] is None
    for name in (*NOISE, "cpu_util_pct"):
        assert columns[name] is None
    assert columns["main_cpu_pct"] is not None
    assert memory(os.getpid())["uss_peak_bytes"] is None


def test_machine_columns_are_plausible() -> None:
    """Load, available memory and the machine's busy share come from the kernel's own files."""
    with HostProbe() as probe:
        assert probe.sample(None)["cpu_util_pct"] is None
        end = time.perf_counter() + 0.1
        while time.perf_counter() < end:
            pass
        sample = probe.sample(None)
    assert 0 < sample["cpu_util_pct"] <= 100  # type: ignore[operator]
    assert sample["load_1m"] >= 0  # type: ignore[operator]
    assert 2**20 < sample["mem_available_bytes"] < 2**50  # type: ignore[operator]
    assert sample["main_cpu_pct"] is None


def test_the_busy_share_is_what_is_neither_idle_nor_waiting_nor_stolen(tmp_path: Path) -> None:
    """Ticks by proc(5): user nice system idle iowait irq softirq steal, then guest time, which user time contains."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 40 5 5 0 7 0\ncpu0 1 1 1 1\n")
    with HostProbe(System(tmp_path, [])) as probe:
        probe.sample(None)
        stat.write_text("cpu  120 5 60 840 50 5 5 10 27 0\ncpu0 1 1 1 1\n")
        sample = probe.sample(None)
    assert sample["cpu_util_pct"] == pytest.approx(100 * 35 / 95)
    assert sample["steal_pct"] == pytest.approx(100 * 10 / 95)


def test_telemetry_and_window_have_the_columns_of_the_record() -> None:
    """What the host probe returns is named as the tables name it, telemetry in their order."""
    with HostProbe() as probe:
        sample = probe.sample(os.getpid())
        columns = difference(probe.counters(os.getpid()), probe.counters(os.getpid()))
    gpu, other = "gpu_", ("run_id", "trial_id", "t_ns", "in_window")
    assert list(sample) == [c.name for c in TELEMETRY if c.name not in other and not c.name.startswith(gpu)]
    assert set(NOISE) < set(columns) <= {column.name for column in TRIALS}


def test_foreign_cpu_is_what_neither_trial_nor_worker_nor_parent_used() -> None:
    """Of 4 cores 60 % are busy, 150 % of a core by the trial and 2 % by its parent: 88 % are foreign.

    Stolen time is nobody's here, and what is less than nothing is nothing.
    """
    before = counters(Ticks(1000, 0, 4000))
    after = counters(Ticks(1240, 40, 4400), t_ns=10**9, own=20_000_000, main=500_000_000, workers=10**9)
    columns = difference(before, after)
    assert columns["foreign_cpu_pct"] == pytest.approx(0.6 * 400 - 150 - 2)
    assert columns["steal_pct"] == 10
    assert columns["cpu_util_pct"] == 60
    more = replace(after, main_cpu_ns=2 * 10**9)
    assert difference(before, more)["foreign_cpu_pct"] == 0


def test_foreign_cpu_is_unknown_when_a_part_is() -> None:
    """Without the machine's ticks, its cores or the trial's own time there is no rest; no ticks at all are no 0."""
    before = counters(Ticks(0, 0, 0))
    after = counters(Ticks(100, 0, 400), t_ns=10**9)
    assert difference(before, after)["foreign_cpu_pct"] == 100
    blind = (
        replace(after, main_cpu_ns=None),
        replace(after, machine=replace(after.machine, ticks=None)),
        replace(after, machine=replace(after.machine, cpus=None)),
        replace(after, machine=replace(after.machine, ticks=Ticks(0, 0, 0))),
    )
    assert [difference(before, each)["foreign_cpu_pct"] for each in blind] == [None] * 4


def test_a_closed_probe_says_none() -> None:
    """Closing twice is no matter, and a closed probe knows nothing of the machine."""
    probe = HostProbe()
    probe.close()
    probe.close()
    assert probe.sample(None) == dict.fromkeys(
        ("cpu_util_pct", "main_cpu_pct", "workers_cpu_pct", "steal_pct", "load_1m", "mem_available_bytes")
    )


def test_a_reused_process_id_counts_from_zero() -> None:
    """A counter that is smaller than before belongs to another process: it adds what it has."""
    tally, totals = Tally(), []
    for value in (10, 15, 4):
        tally.add(7, value)
        totals.append(tally.total)
    assert totals == [10, 15, 19]


def test_busy_share_stays_within_bounds_when_idle_time_shrinks() -> None:
    """Time spent waiting for I/O may go backwards; a share is never over 100 or under 0."""
    before = counters(Ticks(100, 0, 200))
    ends = (Ticks(120, 0, 210), Ticks(90, 0, 210), Ticks(100, 0, 200))
    shares = [difference(before, counters(ticks, t_ns=1))["cpu_util_pct"] for ticks in ends]
    assert shares == [100, 0, None]
