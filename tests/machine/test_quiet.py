"""A look at the machine before a sweep, and waiting for it to be quiet: made-up machines, and this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from beside import tried

from feedrate.machine import quiet
from feedrate.machine.probes import procfs
from feedrate.machine.probes.host import HostProbe
from feedrate.machine.quiet import Quietness, look, wait

PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
BURN = "import time\nprint(flush=True)\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


class Machine:
    """A machine of two cores; time passes on it when somebody sleeps."""

    def __init__(self, proc: Path) -> None:
        self.proc, self.seconds, self.slept = proc, 0.0, 0.0
        self.rates: dict[str, Any] = {}
        self.busy_s = 0.0
        self.until = float("inf")
        self.cpu, self.waiting = 0.0, 0.0
        (proc / "pressure").mkdir()
        (proc / "loadavg").write_text("7.50 0.40 0.30 1/90 1000\n")
        self.write()
        self.probe = HostProbe(proc, [proc])

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        self.slept += seconds
        noisy = max(0.0, min(self.slept, self.until) - (self.slept - seconds))
        self.seconds += seconds
        self.busy_s += noisy * self.rates.get("cores", 0)
        self.waiting += noisy * self.rates.get("waiting", 0)
        self.write()

    def write(self) -> None:
        stolen = self.rates.get("stolen", 0) * self.seconds
        idle = 2 * self.seconds - self.busy_s - stolen
        ticks = [round(100 * value) for value in (self.busy_s, idle, stolen)]
        (self.proc / "stat").write_text("cpu  {} 0 0 {} 0 0 0 {} 0 0\ncpu0 1\ncpu1 1\n".format(*ticks))
        for name in ("cpu", "io", "memory"):
            (self.proc / "pressure" / name).write_text(PSI.format(round(1e6 * self.waiting)))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A made-up machine with a clock of its own."""
    made = Machine(tmp_path)
    monkeypatch.setattr(quiet.time, "sleep", made.sleep)
    monkeypatch.setattr(quiet.time, "monotonic", lambda: made.slept)
    monkeypatch.setattr("feedrate.machine.probes.host.time.perf_counter_ns", lambda: round(made.seconds * 1e9))
    monkeypatch.setattr("feedrate.machine.probes.host.time.process_time_ns", lambda: 0)
    yield made
    made.probe.close()


def test_an_idle_machine_is_quiet(machine: Machine) -> None:
    """Nothing wrong, whatever the load average remembers; all that was measured is a number or unknown."""
    seen = look(machine.probe, None)
    assert seen.quiet
    assert seen.reasons == ()
    assert seen.numbers == {
        "wall_ns": 10**9,
        "cpu_util_pct": 0,
        "foreign_cpu_pct": 0,
        "steal_pct": 0,
        "throttled_ns": None,
        "io_pressure_pct": 0,
        "memory_pressure_pct": 0,
        "cpu_pressure_pct": 0,
        "load_1m": 7.5,
        "gpu_foreign_processes": None,
        "gpu_util_pct": None,
        "gpu_throttle_reasons": None,
    }


def test_what_is_wrong_is_said_in_sentences_with_numbers(machine: Machine) -> None:
    """Foreign CPU, stolen time and waiting: a sentence each, and numbers that a manifest can hold."""
    machine.rates = {"cores": 1.43, "stolen": 0.1, "waiting": 0.35}
    seen = look(machine.probe, None)
    assert not seen.quiet
    cpu, steal, memory, storage = seen.reasons
    assert cpu.startswith("other processes use 143 % of a core")
    assert steal == "the hypervisor takes 7 % of the CPU time that is wanted"
    assert memory == "tasks wait for memory 35 % of the time"
    assert storage == "tasks wait for storage 35 % of the time"
    assert json.loads(json.dumps(seen.numbers)) == seen.numbers


@pytest.mark.parametrize(
    ("computing", "util", "bits", "reasons"),
    [
        (frozenset(), 0.0, 0x01, ()),
        (None, None, None, ()),
        (frozenset({5, 6}), 0.0, 0x01, ("other processes on the GPU: 2",)),
        (frozenset(), 40.0, 0x01, ("somebody computes on the GPU: it is busy 40 % of the time",)),
        (frozenset(), 0.0, 0x40, ("power or heat slows the GPU down",)),
    ],
)
def test_a_gpu_that_others_use_is_not_quiet(
    computing: Any, util: Any, bits: Any, reasons: tuple[str, ...], machine: Machine
) -> None:
    """By its processes, by its utilization where they are hidden, and by what holds its clocks down."""
    gpu: Any = SimpleNamespace(
        computing=lambda: computing, sample=lambda: {"gpu_util_pct": util, "gpu_throttle_reasons": bits}
    )
    seen = look(machine.probe, gpu)
    assert seen.reasons == reasons
    assert seen.numbers["gpu_foreign_processes"] == (None if computing is None else len(computing))


@pytest.mark.parametrize(
    ("until", "limit_s", "quiet", "slept", "lines"),
    [
        (0.0, 300, True, (1, 1), []),
        (20.0, 300, True, (20, 30), ["Waiting", "The"]),
        (float("inf"), 300, False, (298.5, 301.5), ["Waiting", *["Still"] * 4, "Not"]),
        (float("inf"), 0.1, False, (1, 2), ["Waiting", "Not"]),
    ],
    ids=["quiet", "becomes quiet", "stays", "a limit of next to nothing"],
)
def test_waiting(
    machine: Machine, until: float, limit_s: float, quiet: bool, slept: tuple[float, float], lines: list[str]
) -> None:
    """A wait ends within two looks of quiet, or at its limit; it says so, and a line a minute in between."""
    machine.rates, machine.until = {"cores": 1.0}, until
    said: list[str] = []
    assert wait(machine.probe, None, limit_s, said.append).quiet is quiet
    assert slept[0] <= machine.slept <= slept[1]
    assert [line.split(" ", 1)[0] for line in said] == lines
    assert not lines or "at most: other processes use 100 % of a core" in said[0]


@pytest.fixture
def burner() -> Iterator[subprocess.Popen[str]]:
    """A program that computes for 60 s of CPU time."""
    process = subprocess.Popen([sys.executable, "-S", "-c", BURN.format(60)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def busy(seen: Quietness) -> bool:
    return any(reason.startswith("other processes use") for reason in seen.reasons)


@tried
def test_a_real_process_is_seen_and_named(burner: subprocess.Popen[str]) -> None:
    """On this machine: a burning process is a reason, and its program's name stands in it."""
    with HostProbe() as probe:
        seen = look(probe, None, seconds=0.6)
    assert busy(seen)
    assert seen.numbers["foreign_cpu_pct"] > 20  # type: ignore[operator]
    name = procfs.command(burner.pid)
    assert name is not None
    assert name in seen.reasons[0]
    assert str(name) not in json.dumps(seen.numbers)


def test_names_cannot_draw_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may call itself anything: what is not printable is left out."""
    monkeypatch.setattr(procfs, "read", lambda path, size=16384: b"\x1b[31mred\n\xff")
    assert procfs.command(os.getpid()) == "[31mred\N{REPLACEMENT CHARACTER}"
