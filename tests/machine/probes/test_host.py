"""The host probe: made-up files of a machine, and real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from beside import tried

from feedrate.machine.probes import procfs
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
from feedrate.machine.probes.procfs import descendants, footprints, memory, workers_uss
from feedrate.schema.columns import TELEMETRY

S = 1_000_000_000
PSI = "some avg10=0.00 avg60=0.12 avg300=0.30 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
V2 = "usage_usec 9000000\nuser_usec 8000000\nnr_periods 40\nnr_throttled 3\nthrottled_usec {}\nburst_usec 0\n"
V1 = "nr_periods 40\nnr_throttled 3\nthrottled_time {}\n"
QUIET = dict.fromkeys(PRESSURES, 0)
Spawn = Callable[[str], "subprocess.Popen[str]"]
BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
TALK = "print('ready', flush=True)\ninput()\n"
CHILD = "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE)\n"
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


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start Python code in a session of its own; everything in it is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def nobody() -> int:
    """The id of a process that is gone."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@tried
def test_a_burning_process_is_seen_with_the_cpu_time_that_it_says_it_used(spawn: Spawn) -> None:
    """main_cpu_pct is CPU time over wall clock: near 100 for a process that computes all the time."""
    process = spawn(BURN.format(seconds=0.2) + TALK + BURN.format(seconds=0.3) + TALK)
    said(process)
    with HostProbe() as probe:
        before = probe.counters(process.pid)
        probe.sample(process.pid)
        go_on(process)
        assert said(process) == "ready"
        after = probe.counters(process.pid)
        sampled = probe.sample(process.pid)["main_cpu_pct"]
    expected = 100 * 0.3e9 / (after.machine.t_ns - before.machine.t_ns)
    assert difference(before, after)["main_cpu_pct"] == pytest.approx(expected, rel=0.05)
    assert sampled == pytest.approx(expected, rel=0.1)


@tried
def test_a_burning_worker_is_seen_by_sample(spawn: Spawn) -> None:
    """A worker's CPU appears in workers_cpu_pct and not in main_cpu_pct."""
    process = spawn(CHILD + TALK, BURN.format(seconds=30))
    said(process)
    time.sleep(0.2)
    with HostProbe() as probe:
        probe.sample(process.pid)
        (child,) = descendants(process.pid)
        used, started = procfs.cpu_ns(child), time.perf_counter_ns()
        time.sleep(0.3)
        seen = probe.sample(process.pid)
        share = 100 * (procfs.cpu_ns(child) - used) / (time.perf_counter_ns() - started)  # type: ignore[operator]
    assert seen["workers_cpu_pct"] == pytest.approx(share, rel=0.1)
    assert seen["main_cpu_pct"] < 20  # type: ignore[operator]


def test_a_worker_that_died_makes_no_negative_number(spawn: Spawn) -> None:
    """What dead workers used stays in the sum, in the kernel's ticks of 10 ms, so that no counter shrinks."""
    process = spawn(CHILD + TALK + "child.kill(); child.wait()\n" + TALK, BURN.format(seconds=0.1) + TALK)
    assert said(process) == said(process) == "ready"
    with HostProbe() as probe:
        before = probe.counters(process.pid)
        assert len(descendants(process.pid)) == 1
        go_on(process)
        said(process)
        assert descendants(process.pid) == []
        after = probe.counters(process.pid)
    used, kept = before.workers_cpu_ns, after.workers_cpu_ns
    assert used is not None
    assert kept is not None
    assert 100_000_000 < used <= kept < used + 20_000_000
    assert all(value >= 0 for value in difference(before, after).values() if value is not None)


def test_a_dead_process_gives_none() -> None:
    """A process that is gone has no numbers: not 0, no exception."""
    gone = nobody()
    with HostProbe() as probe:
        probe.sample(gone)
        sample, before = probe.sample(gone), probe.counters(gone)
        after = probe.counters(gone)
    assert sample["main_cpu_pct"] is None
    assert sample["workers_cpu_pct"] is None
    columns = difference(before, after)
    assert {name for name, value in columns.items() if value is None} >= {
        "main_cpu_pct",
        "workers_cpu_pct",
        "voluntary_switches",
        "involuntary_switches",
        "major_faults",
        "read_bytes",
    }
    assert memory(footprints(gone))["uss_peak_bytes"] is None
    assert memory(footprints(gone))["pss_peak_bytes"] is None
    assert descendants(gone) == []


def test_context_switches_and_reads_are_counted(spawn: Spawn, tmp_path: Path) -> None:
    """Each sleep is a voluntary switch; bytes that come from the page cache are no reads from storage."""
    cached = tmp_path / "cached"
    cached.write_bytes(bytes(100_000))
    process = spawn(
        f"{TALK}import time\nopen({str(cached)!r}, 'rb').read()\nfor _ in range(50): time.sleep(0.001)\n{TALK}"
    )
    said(process)
    with HostProbe() as probe:
        before = probe.counters(process.pid)
        go_on(process)
        said(process)
        columns = difference(before, probe.counters(process.pid))
    assert columns["voluntary_switches"] >= 50  # type: ignore[operator]
    assert columns["read_bytes"] in (None, *range(100_000))


def test_memory_of_process_and_workers(spawn: Spawn) -> None:
    """Memory is summed over process and descendants; what workers have to themselves is None without any, not 0."""
    process = spawn(CHILD + TALK, "block = bytearray(b'x' * 50_000_000)\nprint('ready', flush=True)\ninput()\n")
    assert said(process) == said(process) == "ready"
    seen, workers = memory(footprints(process.pid)), workers_uss(process.pid)
    assert 50_000_000 < seen["uss_peak_bytes"] <= seen["pss_peak_bytes"] < 150_000_000  # type: ignore[operator]
    assert seen["shm_bytes"] is not None
    assert workers is not None
    assert 50_000_000 < workers < (memory(footprints(process.pid))["uss_peak_bytes"] or 0) - 1_000_000
    (worker,) = descendants(process.pid)
    assert workers_uss(nobody()) is None
    assert workers_uss(worker) is None


def test_what_is_withheld_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without /proc/stat, /proc/PID/io and smaps gets None in those columns and numbers in the others."""
    read = procfs.read
    hidden = ("/io", "/smaps_rollup")
    monkeypatch.setattr(procfs, "read", lambda path, size=16384: None if path.endswith(hidden) else read(path, size))
    (tmp_path / "loadavg").write_text("0.50 0.40 0.30 1/90 1000\n")
    with HostProbe(tmp_path, []) as probe:
        sample = probe.sample(os.getpid())
        columns = difference(probe.counters(os.getpid()), probe.counters(os.getpid()))
    assert (sample["cpu_util_pct"], sample["mem_available_bytes"], sample["load_1m"]) == (None, None, 0.5)
    unknown = {"cpu_util_pct", "foreign_cpu_pct", "steal_pct", "throttled_ns", "io_pressure_pct", "memory_pressure_pct"}
    assert {name for name, value in columns.items() if value is None} == {*unknown, "read_bytes"}
    assert memory(footprints(os.getpid()))["uss_peak_bytes"] is None


def test_what_dead_makers_left_goes_and_all_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names hold their maker's process id; a semaphore that was killed in the making has a name of glibc's own."""
    monkeypatch.setattr(procfs, "SHM", str(tmp_path))
    goes = {"torch_17_99_0", "psm_17_1f", "sem.feedrate-17-ptfn1r1_", "sem.uTkmev"}
    stays = {"torch_18_99_0", "sem.feedrate-18-ptfn1r1_", "sem.mp-fzvmsvii", "sem.somebodys-lock"}
    for name in goes | stays:
        (tmp_path / name).touch()
    assert procfs.shm_segments() == goes | stays
    assert procfs.remove_segments(goes | stays, {17}) == len(goes)
    assert procfs.shm_segments() == stays
