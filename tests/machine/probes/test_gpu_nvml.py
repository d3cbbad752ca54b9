"""The GPU probe through the real bindings: a stub of NVML has planted devices, and what is reported is what it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from stubs import compile_library

from feedrate.machine.probes.gpu import NO_GPU
from feedrate.schema.columns import TELEMETRY

PLANTED = {
    "Init": "0",
    "Count": "2",
    "DriverVersion": "580.65.06",
    "UUID": "GPU-aaaa1111,GPU-bbbb2222",
    "Name": "NVIDIA Example A,NVIDIA Example B",
    "Utilization": "40,90",
    "PowerUsage": "150500,651250",
    "EnforcedPowerLimit": "700000,400000",
    "MemoryTotal": "85520809984,150754820096",
    "MemoryUsed": "5368709120,6442450944",
    "ClockSM": "1980,1410",
    "ClockOther": "1,1",
    "Temperature": "55,71",
    "ClocksReasons": "4,9223372036854775808",
    "PcieRx": "7000,12500000",
    "PcieTx": "1,1",
    "TotalEnergyConsumption": "12500,18000000000000",
    "MaxPcieLinkGeneration": "5,4",
    "MaxPcieLinkWidth": "16,8",
    "Process": "4242,0",
}
"""The answers of two devices, in NVML's units: mW, bytes, MHz, °C, kB/s, mJ."""
FIRST = {
    "gpu_util_pct": 40.0,
    "gpu_power_w": 150.5,
    "gpu_mem_bytes": 5368709120,
    "gpu_sm_clock_mhz": 1980.0,
    "gpu_temperature_c": 55.0,
    "gpu_throttle_reasons": 4,
    "gpu_pcie_rx_bytes_per_s": 7e6,
}
LOOK = """
import json, os
from feedrate.machine.probes import gpu
said = {"device": gpu.device(), "count": gpu.count(), "installed": gpu.installed()}
if probe := gpu.GpuProbe.open():
    said |= {"sample": probe.sample(), "energy_j": probe.energy_j(), "facts": probe.facts()}
    said |= {"computing": sorted(probe.computing() or ()), "foreign": probe.foreign_processes(set(), {os.getpid()})}
    probe.close()
print(json.dumps(said))
"""
Look = Callable[..., Any]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Ask the probe in a new process, with other answers than those that are planted, or None for unsupported."""

    def ask(changes: Mapping[str, str | None] = {}) -> Any:
        path = compile_library("libnvidia-ml", tmp_path)
        plan = {name: value for name, value in {**PLANTED, **changes}.items() if value is not None}
        kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        environment = kept | {"LD_LIBRARY_PATH": str(path), "PYTHONPATH": os.pathsep.join(sys.path)} | plan
        done = subprocess.run(
            [sys.executable, "-c", LOOK], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(done.stdout)

    return ask


def test_a_device_is_read_as_it_was_planted(look: Look) -> None:
    """Every answer arrives in the unit of its column, and as large as it was; no fact identifies the board."""
    said = look()
    assert said["sample"] == FIRST
    assert list(FIRST) == list(NO_GPU) == [column.name for column in TELEMETRY if column.name.startswith("gpu_")]
    assert (said["device"], said["count"], said["energy_j"]) == ("cuda", 2, 12.5)
    assert said["installed"] == [["NVIDIA Example A", 85520809984], ["NVIDIA Example B", 150754820096]]
    assert (said["computing"], said["foreign"]) == ([4242], 0)
    assert said["facts"] == {
        "name": "NVIDIA Example A",
        "memory_bytes": 85520809984,
        "driver": "580.65.06",
        "pcie_generation": 5,
        "pcie_width": 16,
        "power_limit_w": 700.0,
    }


def test_a_device_that_answers_nothing_is_all_null(look: Look) -> None:
    """A device whose every question fails has a row of nulls, and no number is made up."""
    said = look(dict.fromkeys(PLANTED.keys() - {"Init", "Count"}))
    assert said["sample"] == NO_GPU
    assert set(said["facts"].values()) == {None}
    assert said["installed"] == []


@pytest.mark.parametrize("changes", [{"Init": "!9"}, {"Count": "0"}, {"Count": "!999"}])
def test_a_driver_without_a_device_is_a_cpu(changes: dict[str, str], look: Look) -> None:
    """NVML that does not start, has no device, or fails to count them: no probe, and the plan is for a CPU."""
    assert look(changes) == {"device": "cpu", "count": 0, "installed": []}
