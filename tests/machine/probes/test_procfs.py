"""What the kernel says of processes and of shared memory, and what stands in for what it does not say."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from feedrate.machine.probes import procfs


def test_ticks_stand_in_for_a_missing_cpu_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without process CPU clocks, /proc/PID/stat answers, to a tick."""

    def refuse(clock: int) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(procfs.time, "clock_gettime_ns", refuse)
    before = procfs.cpu_ns(os.getpid())
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    used = procfs.cpu_ns(os.getpid()) - before  # type: ignore[operator]
    assert used == pytest.approx(0.2e9, abs=3 * procfs.TICK_NS)


def test_shared_memory_of_torch_is_recognised_and_other_files_are_not() -> None:
    """Names as ATen makes them count, if they are ours."""
    ours, other = (Path(procfs.SHM, f"{prefix}_{os.getpid()}_1_0") for prefix in ("torch", "feedrate-test"))
    try:
        ours.touch()
        other.touch()
        assert ours.name in procfs.shm_segments()
        assert other.name not in procfs.shm_segments()
    finally:
        ours.unlink()
        other.unlink()
    assert ours.name not in procfs.shm_segments()
