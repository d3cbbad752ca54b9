"""What the watch of a trial writes down: columns of the record, and the flags that follow from them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from feedrate.machine.probes.host import HostProbe
from feedrate.schema.columns import TELEMETRY, TRIALS
from feedrate.sweep.launcher import Answer
from feedrate.sweep.observer import Observer

PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"


class Machine:
    """A machine of two cores whose files say what they are told to."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.says()
        self.probe = HostProbe(proc, [proc])

    def says(self, busy: int = 0, idle: int = 0, steal: int = 0, memory_us: int = 0, throttled_us: int = 0) -> None:
        """Counters since it started: ticks of all cores, waiting for memory, stopped by a quota."""
        (self.proc / "pressure").mkdir(exist_ok=True)
        (self.proc / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1\ncpu1 1\n")
        (self.proc / "pressure" / "memory").write_text(PSI.format(memory_us))
        (self.proc / "cpu.stat").write_text(f"throttled_usec {throttled_us}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr("feedrate.machine.probes.host.time.process_time_ns", lambda: 0)
    made = Machine(tmp_path)
    yield made
    made.probe.close()


@pytest.fixture
def trial() -> Iterator[int]:
    """A process that sleeps."""
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


def gpu(before: int, foreign: int | None, bits: int) -> Any:
    """A GPU with so many processes before the trial; what it says beside it, and why its clocks are as they are."""
    return SimpleNamespace(
        computing=lambda: frozenset(range(before)),
        foreign_processes=lambda seen, ours: foreign if len(seen) == before and ours else None,
        energy_j=iter((1.0, 3.5)).__next__,
        sample=lambda: {"gpu_throttle_reasons": bits},
    )


def answered(**row: Any) -> Answer:
    now = time.perf_counter_ns()
    result = {
        "row": {"wall_ns": 600_000_000, "steady": True, **row},
        "started_ns": now - 10**10,
        "ended_ns": now + 10**10,
    }
    return Answer("ok", result=result, ordered_ns=now - 10**10, over_ns=now)


def watched(observer: Observer, machine: Machine, pid: int, answer: Answer, **says: int) -> dict[str, Any]:
    """A trial during whose window the machine came to say something."""
    observer("window_opens", pid, {})
    machine.says(**says)
    observer("tick", pid, {})
    time.sleep(0.1)
    observer("window_closes", pid, {})
    return observer.entry(answer, {"run_id": "r", "trial_id": "t"}, {"mode": "load"})


IDLE = {"idle": 200}
DISTURBED = {"busy": 100, "idle": 80, "steal": 20, "memory_us": 10**9, "throttled_us": 70_000}


@pytest.mark.parametrize(
    ("device", "says", "columns", "flags"),
    [
        (None, IDLE, {"foreign_cpu_pct": 0, "steal_pct": 0, "throttled_ns": 0, "memory_pressure_pct": 0}, None),
        (None, IDLE, {"io_pressure_pct": None}, None),
        (gpu(0, None, 0x01), IDLE, {"gpu_foreign_processes": None, "gpu_throttle_reasons": 1}, None),
        (gpu(1, 0, 0), IDLE, {"gpu_energy_j": 2.5}, None),
        (
            gpu(before=2, foreign=2, bits=0x09),
            DISTURBED,
            {"steal_pct": 10, "throttled_ns": 70_000_000, "memory_pressure_pct": 100, "gpu_foreign_processes": 2},
            "foreign_cpu,steal,throttled,pressure,gpu_throttled,gpu_shared,unsteady",
        ),
    ],
)
def test_a_trial_has_columns_and_flags(
    device: Any, says: dict[str, int], columns: dict[str, Any], flags: str | None, machine: Machine, trial: int
) -> None:
    """Zeros where the machine tells, null where it does not; each disturbance is in its column and among the flags.

    Unknown is null and flags nothing; an idle GPU's clocks are no disturbance.
    """
    answer = answered(steady=False, half_ratio=0.7) if flags else answered()
    entry = watched(
        Observer(machine.probe, device, 0, lambda _: None, datetime.now(UTC)), machine, trial, answer, **says
    )
    row = entry["trial"]
    assert {name: row[name] for name in columns} == columns
    assert row["flags"] == flags
    assert row.keys() <= {column.name for column in TRIALS}
    assert entry["telemetry"][0].keys() <= {column.name for column in TELEMETRY}
    if flags:
        assert row["foreign_cpu_pct"] == pytest.approx(100, abs=20)
    if "gpu_energy_j" in columns:  # the counter is read beside the window, not at its borders
        assert 0.1e9 <= row["gpu_energy_ns"] < 10e9


@pytest.mark.parametrize(
    ("growth", "late_ns", "expected"),
    [
        (True, 10**9, {"workers_uss_start_bytes": 1, "workers_uss_end_bytes": 2}),
        (True, -(10**9), {"workers_uss_start_bytes": None, "workers_uss_end_bytes": 2}),
        (False, 10**9, {}),
    ],
)
def test_what_workers_come_to_own_is_read_twice(
    machine: Machine, trial: int, growth: bool, late_ns: int, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first batch, unless that may lie in the window, and after the window; only where it is asked for."""
    read = iter([1, 2])
    monkeypatch.setattr("feedrate.sweep.observer.workers_uss", lambda pid: next(read))
    observer = Observer(machine.probe, None, 0, lambda _: None, datetime.now(UTC), growth=growth)
    observer("first_batch", trial, {})
    answer = answered()
    answer.result["started_ns"] = time.perf_counter_ns() + late_ns
    observer("result", trial, {})
    row = observer.entry(answer, {"run_id": "r", "trial_id": "t"}, {})["trial"]
    assert {name: value for name, value in row.items() if name.startswith("workers_uss")} == expected
