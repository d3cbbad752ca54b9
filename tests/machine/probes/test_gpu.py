"""The GPU probe against a stand-in for pynvml, and through the real bindings against a stub of NVML."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from beside import seconds
from stubs import compile_library

from feedrate.machine.probes import gpu
from feedrate.machine.probes.gpu import NO_GPU, GpuProbe, count, device, installed, window
from feedrate.schema.columns import TELEMETRY, TRIALS

S = 1_000_000_000


class NVMLError(Exception):
    """As pynvml's."""


class NotSupported(NVMLError):
    """As pynvml's NVMLError_NotSupported."""


def raising(*_: Any) -> Any:
    raise NotSupported


def fake_nvml(**changes: Callable[..., Any]) -> ModuleType:
    """Two GPUs; handles are their indices."""
    module: Any = ModuleType("pynvml")
    module.NVMLError, module.NVMLLibraryMismatchError = NVMLError, LookupError
    answers: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "999.1",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{'ab'[handle]}0000000",
        "nvmlDeviceGetName": lambda handle: f"NVIDIA Example {handle}",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=5, total=80),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=os.getpid())],
        "nvmlDeviceGetMPSComputeRunningProcesses": lambda handle: [],
    }
    vars(module).update(answers | changes)
    return module  # type: ignore[no-any-return]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a fake driver and its library."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu.ctypes, "CDLL", lambda name: None)
    return lambda **changes: monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**changes))


def opened() -> GpuProbe:
    probe = GpuProbe.open()
    assert probe is not None
    return probe


def test_a_machine_without_a_driver_has_no_gpu_and_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVML's library: None, cpu, nothing installed, within 10 ms."""

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(gpu.ctypes, "CDLL", missing)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert GpuProbe.open() is None
    assert min(seconds(GpuProbe.open) for _ in range(5)) < 0.01
    assert device() == "cpu"
    assert installed() == []


A, B, MIG = (f"{letter * 8}-0000-0000-0000-000000000000" for letter in "abc")
"""Two GPUs and an instance of the second, as CUDA tells their UUIDs."""


def uuid(handle: int | str) -> str:
    return f"MIG-{MIG}" if handle == "mig" else f"GPU-{(A, B)[int(handle)]}"


def parent(handle: int | str) -> int:
    return 1 if handle == "mig" else raising()


def instance(handle: int, index: int) -> str:
    return "mig" if (handle, index) == (1, 2) else raising()


SPLIT = {
    "nvmlDeviceGetUUID": uuid,
    "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7 * handle,
    "nvmlDeviceGetMigDeviceHandleByIndex": instance,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": parent,
    "nvmlDeviceGetHandleByUUID": lambda name: "mig",
    "nvmlDeviceGetName": str,
}
"""The second GPU is split, and one instance of seven is there."""


@pytest.mark.parametrize(
    ("visible", "told", "watched"),
    [
        (None, A, "0"),
        (None, B, "1"),  # CUDA lists the fastest first, NVML by bus address
        (None, MIG, "mig"),  # CUDA takes an instance of a GPU that is split
        ("1", MIG, "mig"),
        (f"MIG-{MIG}", MIG, "mig"),
        (f"MIG-{MIG}", B, "mig"),  # a CUDA that tells the GPU's UUID of its instance
    ],
)
def test_the_gpu_that_trials_run_on_is_watched(
    visible: str | None, told: str, watched: str, driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever order NVML has, the UUID that CUDA tells is what counts, MIG instances included."""
    driver(**SPLIT)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    probe = opened()
    assert probe.follow(told)
    assert probe.facts()["name"] == watched


@pytest.mark.parametrize(
    ("visible", "first", "number"),
    [
        (None, 0, 2),
        ("0", 0, 1),
        ("0,1", 0, 2),
        ("0,7,1", 0, 1),
        ("1,0", 1, 2),
        (" 1 ", 1, 1),
        ("GPU-b", 1, 1),
        ("GPU-b,0", 1, 2),
        ("GPU-b0000000,GPU-a0000000", 1, 2),
        *((text, None, 0) for text in ("", "-1", "-1,0", "2", "GPU-", "GPU-c", "GPU-x,0", "nonsense")),
    ],
)
def test_visible_devices_are_honoured(
    visible: str | None, first: int | None, number: int, driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe watches the first GPU that CUDA will see; an entry that names none hides all that follow."""
    driver()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    probe = GpuProbe.open()
    assert (probe.facts()["name"] if probe else None) == (None if first is None else f"NVIDIA Example {first}")
    assert device() == ("cpu" if first is None else "cuda")
    assert count() == number
    assert installed() == [("NVIDIA Example 0", 80), ("NVIDIA Example 1", 80)]


def listing(*pids: int) -> Callable[..., Any]:
    return lambda handle: [SimpleNamespace(pid=pid) for pid in pids]


@pytest.mark.parametrize(
    ("before", "now", "foreign"),
    [
        ({7}, (7, 8, 100), 2),  # ours is listed: all others are foreign, newcomers too
        (set(), (100, 101), 0),  # two of ours
        ({7}, (7, 900), 1),  # a container: ours goes by another number, and is the newcomer
        ({7}, (7, 900, 901), 2),  # of two newcomers one is ours
        (set(), (900,), 0),
        ({7, 8}, (7, 8), 2),  # ours is not on the GPU
        ({7, 8}, (8,), 1),
        (set(), (), None),  # nobody, though ours is there: processes may be hidden
        (None, (7, 8), None),
    ],
)
def test_foreign_processes_are_told_from_a_trial(
    before: set[int] | None, now: tuple[int, ...], foreign: int | None, driver: Callable[..., Any]
) -> None:
    """By its number where that is listed, else by who was there before."""
    driver(nvmlDeviceGetComputeRunningProcesses=listing(*now))
    assert opened().foreign_processes(before, {100, 101}) == foreign


def at(seconds: float, util: float | None = None, power: float | None = None, reasons: int | None = None) -> Any:
    return {
        "t_ns": int(seconds * S),
        "gpu_util_pct": util,
        "gpu_power_w": power,
        "gpu_sm_clock_mhz": power,
        "gpu_throttle_reasons": reasons,
    }


@pytest.mark.parametrize(
    ("samples", "end", "expected"),
    [
        # samples before and up to a second after the start describe the time before the window
        (
            [at(9.5, 0, 10, 1), at(10.5, 10, 100, 4), at(11, 80, 200, 8), at(12.9, 90, 300), at(13.5, 0, 0, 2)],
            13 * S,
            (85.0, 250.0, 200.0, 12),
        ),
        # under 3 s the driver's averaging blurs the window
        ([at(10.5, 50, 100, 0), at(11.5, 50, 100, 0)], 13 * S - 1, (None, None, 100, 0)),
        ([at(1.0)], 20 * S, (None,) * 4),
    ],
)
def test_a_window_is_summed_up(samples: list[Any], end: int, expected: tuple[Any, ...]) -> None:
    """Utilization and power are means that begin a second late, clocks a mean, reasons or-ed; nothing seen is null."""
    result = window(samples, 10 * S, end)
    columns = ("gpu_util_pct", "gpu_power_w", "gpu_sm_clock_mhz", "gpu_throttle_reasons")
    assert result == dict(zip(columns, expected, strict=True))
    assert set(result) <= {column.name for column in TRIALS}


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
