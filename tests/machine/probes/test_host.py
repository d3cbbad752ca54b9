"""The host probe, against real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from beside import tried

from feedrate.machine.probes import procfs
from feedrate.machine.probes.host import HostProbe, difference
from feedrate.machine.probes.procfs import descendants, memory, workers_uss

Spawn = Callable[[str], "subprocess.Popen[str]"]
BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
TALK = "print('ready', flush=True)\ninput()\n"
CHILD = "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE)\n"


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
    assert memory(gone)["uss_peak_bytes"] is None
    assert memory(gone)["pss_peak_bytes"] is None
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
    seen, workers = memory(process.pid), workers_uss(process.pid)
    assert 50_000_000 < seen["uss_peak_bytes"] <= seen["pss_peak_bytes"] < 150_000_000  # type: ignore[operator]
    assert seen["shm_bytes"] is not None
    assert workers is not None
    assert 50_000_000 < workers < (memory(process.pid)["uss_peak_bytes"] or 0) - 1_000_000
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
    assert memory(os.getpid())["uss_peak_bytes"] is None


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
