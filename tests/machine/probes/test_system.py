"""The machine's own files, made up: pressure, quotas, stolen time, and what is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from feedrate.machine import identity
from feedrate.machine.probes.system import PRESSURES, MachineCounters, System, Ticks, disturbance, pressure_pct

S = 1_000_000_000
PSI = "some avg10=0.00 avg60=0.12 avg300=0.30 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"
STAT = "cpu  {} 0 0 {} 0 0 0 {} 0 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 5 0\nctxt 7\n"
V2 = "usage_usec 9000000\nuser_usec 8000000\nnr_periods 40\nnr_throttled 3\nthrottled_usec {}\nburst_usec 0\n"
V1 = "nr_periods 40\nnr_throttled 3\nthrottled_time {}\n"


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def read(proc: Path, *groups: Path) -> MachineCounters:
    system = System(proc, groups)
    try:
        return system.counters()
    finally:
        system.close()


def test_pressure_is_the_total_of_some_in_microseconds(tmp_path: Path) -> None:
    """Each resource's own file is read, the line of at least one waiting task, not that of all."""
    for place, name in enumerate(PRESSURES):
        write(tmp_path, f"pressure/{name}", PSI.format(some=1000 + place, full=5))
    assert read(tmp_path).pressure_us == {"cpu": 1000, "io": 1001, "memory": 1002}


@pytest.mark.parametrize("text", ["", "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", "some total=x\n", "nonsense"])
def test_pressure_that_cannot_be_read_is_none(text: str, tmp_path: Path) -> None:
    """No file, an empty one (PSI switched off) or an unknown text: None, and the other resources are not touched."""
    write(tmp_path, "pressure/io", text)
    write(tmp_path, "pressure/cpu", PSI.format(some=8, full=0))
    assert read(tmp_path).pressure_us == {"cpu": 8, "io": None, "memory": None}


def test_a_window_has_the_share_of_its_time_under_pressure(tmp_path: Path) -> None:
    """Files stay open and are read again; 50 ms of waiting in a second are 5 %, and no share is over 100."""
    for name in PRESSURES:
        write(tmp_path, f"pressure/{name}", PSI.format(some=1_000_000, full=0))
    system = System(tmp_path, [])
    before = system.counters()
    write(tmp_path, "pressure/io", PSI.format(some=1_050_000, full=0))
    write(tmp_path, "pressure/memory", PSI.format(some=9_000_000, full=0))
    after = system.counters()
    system.close()
    after = replace(after, t_ns=before.t_ns + S)
    assert [pressure_pct(before, after, name) for name in PRESSURES] == [0, 5, 100]
    assert disturbance(before, after, 0)["io_pressure_pct"] == 5


def test_time_stopped_by_a_quota_is_read_in_both_versions(tmp_path: Path) -> None:
    """Version 2 counts microseconds, version 1 nanoseconds; groups above that limit too are added."""
    inner, outer, old = (tmp_path / name for name in ("outer/inner", "outer", "old"))
    write(inner, "cpu.stat", V2.format(1500))
    write(outer, "cpu.stat", V2.format(500))
    write(old, "cpu.stat", V1.format(7_000_000))
    assert read(tmp_path, inner).throttled_ns == 1_500_000
    assert read(tmp_path, inner, outer).throttled_ns == 2_000_000
    assert read(tmp_path, inner, inner).throttled_ns == 1_500_000
    assert read(tmp_path, old).throttled_ns == 7_000_000


def test_a_group_without_a_quota_of_its_own_says_nothing(tmp_path: Path) -> None:
    """The root of version 2 has no such line, a missing folder no file: None, never 0."""
    write(tmp_path / "root", "cpu.stat", "usage_usec 9000000\nuser_usec 8000000\nsystem_usec 1000000\n")
    assert read(tmp_path, tmp_path / "root", tmp_path / "gone").throttled_ns is None
    assert read(tmp_path).throttled_ns is None


def test_the_groups_of_this_process_are_found_where_none_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the CPU groups that the quota is read from are watched."""
    write(tmp_path, "cpu.stat", V2.format(3))
    monkeypatch.setattr(identity, "groups", lambda controller: [tmp_path] if controller == "cpu" else [])
    system = System(tmp_path)
    assert system.counters().throttled_ns == 3000
    system.close()


def test_stolen_time_is_not_busy_time(tmp_path: Path) -> None:
    """Ticks that the hypervisor took are a share of their own."""
    write(tmp_path, "stat", STAT.format(100, 850, 50))
    counters = read(tmp_path)
    assert counters.ticks == Ticks(busy=100, steal=50, total=1000)
    assert counters.cpus == 2


def test_a_kernel_that_does_not_count_stolen_time_gives_none(tmp_path: Path) -> None:
    """Old kernels have fewer columns: stolen time is unknown, the busy share is not."""
    write(tmp_path, "stat", "cpu  100 0 0 900\ncpu0 100 0 0 900\n")
    before = read(tmp_path)
    assert before.ticks == Ticks(busy=100, steal=None, total=1000)
    columns = disturbance(before, replace(before, ticks=Ticks(busy=150, steal=None, total=1100)), 0)
    assert columns["steal_pct"] is None
    assert columns["cpu_util_pct"] == 50


@pytest.mark.parametrize("text", ["", "cpu  1 2\n", "cpu  a b c d e f g h\n"])
def test_ticks_that_cannot_be_understood_are_none(text: str, tmp_path: Path) -> None:
    """Neither an exception nor a 0."""
    write(tmp_path, "stat", text)
    assert read(tmp_path).ticks is None


def test_a_machine_that_tells_nothing_is_none_throughout(tmp_path: Path) -> None:
    """A folder without any of the files: every column of the window is None."""
    before, after = read(tmp_path), read(tmp_path)
    assert set(disturbance(before, after, 0).values()) == {None}
    assert pressure_pct(before, after, "cpu") is None
    system = System(tmp_path, [])
    assert system.load_1m() is None
    assert system.mem_available_bytes() is None


def test_unreadable_files_are_none(tmp_path: Path) -> None:
    """What can be opened but not read (a folder, here) counts as not there."""
    for name in ("stat", "loadavg", "pressure/cpu"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "group" / "cpu.stat").mkdir(parents=True)
    counters = read(tmp_path, tmp_path / "group")
    assert counters.ticks is None
    assert counters.cpus is None
    assert counters.throttled_ns is None
    assert set(counters.pressure_us.values()) == {None}


def test_closing_leaves_no_file_open(tmp_path: Path) -> None:
    """Twice is no matter; afterwards nothing is known."""
    write(tmp_path, "stat", STAT.format(1, 1, 1))
    write(tmp_path, "cpu.stat", V2.format(3))
    files = open_files()
    system = System(tmp_path, [tmp_path])
    assert open_files() == files + 2
    system.close()
    system.close()
    assert open_files() == files
    assert system.counters().ticks is None
    assert system.counters().throttled_ns is None


def test_this_machine_is_read_without_an_error() -> None:
    """Whatever this kernel offers: counters only grow, and cores are those of /proc/stat."""
    system = System()
    before, after = system.counters(), system.counters()
    system.close()
    assert system.cpus == Path("/proc/stat").read_text().count("\ncpu")
    for name in PRESSURES:
        if (first := before.pressure_us[name]) is not None:
            assert after.pressure_us[name] >= first  # type: ignore[operator]
    assert after.own_cpu_ns >= before.own_cpu_ns > 0
