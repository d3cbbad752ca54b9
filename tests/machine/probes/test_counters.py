"""The host probe: the machine's own files, made up, and what two readings of them add up to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feedrate.machine.probes.host import (
    PRESSURES,
    HostProbe,
    MachineCounters,
    Ticks,
    TrialCounters,
    difference,
    disturbance,
    pressure_pct,
)
from feedrate.schema.columns import TELEMETRY

S = 1_000_000_000
PSI = "some avg10=0.00 avg60=0.12 avg300=0.30 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
V2 = "usage_usec 9000000\nuser_usec 8000000\nnr_periods 40\nnr_throttled 3\nthrottled_usec {}\nburst_usec 0\n"
V1 = "nr_periods 40\nnr_throttled 3\nthrottled_time {}\n"
QUIET = dict.fromkeys(PRESSURES, 0)
Read = Callable[..., MachineCounters]


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Read]:
    """Write files below a made-up /proc, name to text, and read the counters of the control groups that are named."""
    probes: list[HostProbe] = []

    def call(*groups: str, **files: str) -> MachineCounters:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        probes.append(HostProbe(tmp_path, [tmp_path / group for group in groups]))
        return probes[-1].machine()

    yield call
    for probe in probes:
        probe.close()


@pytest.mark.parametrize(
    ("stat", "ticks", "cpus"),
    [
        # user nice probe idle iowait irq softirq steal, then guest time, which user time contains: proc(5)
        ("cpu  120 5 60 840 50 5 5 10 27 0\ncpu0 1 1 1 1\n", Ticks(busy=195, steal=10, total=1095), 1),
        ("cpu  100 0 0 850 0 0 0 50 0 0\ncpu0 1\ncpu1 1\nintr 5 0\n", Ticks(busy=100, steal=50, total=1000), 2),
        ("cpu  100 0 0 900\ncpu0 100 0 0 900\n", Ticks(busy=100, steal=None, total=1000), 1),  # an old kernel
        ("", None, None),
        ("cpu  1 2\n", None, None),
        ("cpu  a b c d e f g h\n", None, None),
    ],
)
def test_ticks(stat: str, ticks: Ticks | None, cpus: int | None, read: Read) -> None:
    """Busy is what is neither idle nor waiting nor stolen; what cannot be understood is None, no exception and no 0."""
    counters = read(stat=stat)
    assert (counters.ticks, counters.cpus) == (ticks, cpus)


def test_a_window_has_the_share_of_its_time_under_pressure(tmp_path: Path) -> None:
    """Files stay open and are read again; 50 ms of waiting in a second are 5 %, and no share is over 100."""
    (tmp_path / "pressure").mkdir()
    for name in PRESSURES:
        (tmp_path / "pressure" / name).write_text(PSI.format(1_000_000))
    probe = HostProbe(tmp_path, [])
    before = probe.machine()
    (tmp_path / "pressure/io").write_text(PSI.format(1_050_000))
    (tmp_path / "pressure/memory").write_text(PSI.format(9_000_000))
    after = replace(probe.machine(), t_ns=before.t_ns + S)
    probe.close()
    assert [pressure_pct(before, after, name) for name in PRESSURES] == [0, 5, 100]
    assert disturbance(before, after, 0)["io_pressure_pct"] == 5


@pytest.mark.parametrize(
    ("groups", "throttled_ns"),
    [
        (["outer/inner"], 1_500_000),
        (["outer/inner", "outer"], 2_000_000),
        (["outer/inner", "outer/inner"], 1_500_000),
        (["old"], 7_000_000),
        (["root", "gone"], None),
        ([], None),
    ],
)
def test_time_stopped_by_a_quota(groups: list[str], throttled_ns: int | None, read: Read) -> None:
    """Version 2 counts microseconds, version 1 nanoseconds; groups above that limit too are added."""
    files = {"outer__inner__cpu.stat": V2.format(1500), "outer__cpu.stat": V2.format(500)}
    files |= {"old__cpu.stat": V1.format(7_000_000), "root__cpu.stat": "usage_usec 9000000\nuser_usec 8000000\n"}
    assert read(*groups, **files).throttled_ns == throttled_ns


@pytest.mark.parametrize("made", [False, True])
def test_a_machine_that_tells_nothing_is_none_throughout(made: bool, tmp_path: Path, read: Read) -> None:
    """Without any of the files, or with files that can be opened but not read (folders, here), every column is None."""
    for name in ("stat", "loadavg", "meminfo", "group/cpu.stat", *(f"pressure/{name}" for name in PRESSURES)):
        if made:
            (tmp_path / name).mkdir(parents=True)
    before, after = read("group"), read("group")
    assert set(disturbance(before, after, 0).values()) == {None}
    assert pressure_pct(before, after, "cpu") is None
    with HostProbe(tmp_path, []) as probe:
        assert set(probe.sample(None).values()) == {None}
        assert probe.cpus is None


def test_this_machine_is_read_without_an_error() -> None:
    """Whatever this kernel offers: counters only grow, cores are those of /proc/stat, samples the record's columns."""
    with HostProbe() as probe:
        before, after = probe.machine(), probe.machine()
        sample = probe.sample(os.getpid())
    others = ("run_id", "trial_id", "t_ns", "in_window")
    assert list(sample) == [c.name for c in TELEMETRY if c.name not in others and not c.name.startswith("gpu_")]
    assert sample["load_1m"] >= 0  # type: ignore[operator]
    assert 2**20 < sample["mem_available_bytes"] < 2**50  # type: ignore[operator]
    assert probe.cpus == Path("/proc/stat").read_text().count("\ncpu")
    for name in PRESSURES:
        if (first := before.pressure_us[name]) is not None:
            assert after.pressure_us[name] >= first  # type: ignore[operator]
    assert after.own_cpu_ns >= before.own_cpu_ns > 0


def counters(ticks: Ticks | None, main: int | None = 0, workers: int = 0, **machine: Any) -> TrialCounters:
    """Counters that nobody read, of four cores."""
    facts: dict[str, Any] = {"t_ns": 0, "own_cpu_ns": 0, "cpus": 4, "pressure_us": QUIET, "throttled_ns": 0}
    return TrialCounters(MachineCounters(ticks, **{**facts, **machine}), main, workers, {})


def test_foreign_cpu_is_what_neither_trial_nor_worker_nor_parent_used() -> None:
    """Of 4 cores 60 % are busy, 150 % of a core by the trial and 2 % by its parent: 88 % are foreign."""
    before = counters(Ticks(1000, 0, 4000))
    after = counters(Ticks(1240, 40, 4400), t_ns=S, own_cpu_ns=20_000_000, main=500_000_000, workers=S)
    columns = difference(before, after)
    assert columns["foreign_cpu_pct"] == pytest.approx(0.6 * 400 - 150 - 2)
    assert (columns["steal_pct"], columns["cpu_util_pct"]) == (10, 60)
    assert difference(before, replace(after, main_cpu_ns=2 * S))["foreign_cpu_pct"] == 0
