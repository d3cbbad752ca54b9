"""The GPU probe, against a stand-in for pynvml; no GPU is needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from beside import seconds

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
    module.NVMLError = NVMLError
    module.NVML_CLOCK_SM, module.NVML_TEMPERATURE_GPU, module.NVML_PCIE_UTIL_RX_BYTES = 1, 0, 1
    module.calls = []
    answers: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: module.calls.append("init"),
        "nvmlShutdown": lambda: module.calls.append("shutdown"),
        "nvmlSystemGetDriverVersion": lambda: "999.1",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{'ab'[handle]}0000000",
        "nvmlDeviceGetName": lambda handle: f"NVIDIA Example {handle}",
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=40, memory=10),
        "nvmlDeviceGetPowerUsage": lambda handle: 150_500,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=5, total=80),
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1980,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 55,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0,
        "nvmlDeviceGetPcieThroughput": lambda handle, counter: 7,
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 12_500,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=os.getpid())],
        "nvmlDeviceGetMPSComputeRunningProcesses": lambda handle: [],
    }
    for name, answer in {**answers, **changes}.items():
        setattr(module, name, answer)
    return module  # type: ignore[no-any-return]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Install a fake driver and its library."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(**changes: Callable[..., Any]) -> Any:
        module = fake_nvml(**changes)
        monkeypatch.setattr(gpu.ctypes, "CDLL", lambda name: None)
        monkeypatch.setitem(sys.modules, "pynvml", module)
        return module

    return install


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


def test_a_library_without_a_driver_is_no_gpu(driver: Callable[..., Any]) -> None:
    """NVML installed, driver not loaded: None."""
    driver(nvmlInit=raising)
    assert GpuProbe.open() is None
    assert installed() == []


def test_no_gpu_on_the_bus_is_no_gpu(driver: Callable[..., Any]) -> None:
    """A driver without a device: None, and NVML is shut down again."""
    module = driver(nvmlDeviceGetCount=lambda: 0)
    assert GpuProbe.open() is None
    assert module.calls == ["init", "shutdown"]


@pytest.mark.parametrize(
    ("visible", "name"),
    [
        (None, "NVIDIA Example 0"),
        ("0", "NVIDIA Example 0"),
        ("1,0", "NVIDIA Example 1"),
        (" 1 ", "NVIDIA Example 1"),
        ("GPU-b", "NVIDIA Example 1"),
        ("GPU-b0000000,GPU-a0000000", "NVIDIA Example 1"),
        ("", None),
        ("-1", None),
        ("-1,0", None),
        ("2", None),
        ("GPU-", None),
        ("GPU-c", None),
        ("nonsense", None),
    ],
)
def test_visible_devices_are_honoured(
    visible: str | None, name: str | None, driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe watches the first GPU that CUDA will see, or none."""
    driver()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    probe = GpuProbe.open()
    assert (probe.facts()["name"] if probe else None) == name
    assert device() == ("cuda" if name else "cpu")
    assert installed() == [("NVIDIA Example 0", 80), ("NVIDIA Example 1", 80)]


@pytest.mark.parametrize(
    ("visible", "number"),
    [(None, 2), ("1", 1), ("0,1", 2), ("0,7,1", 1), ("GPU-b,0", 2), ("GPU-x,0", 0), ("", 0), ("-1", 0)],
)
def test_cuda_sees_what_is_named_before_the_first_wrong_entry(
    driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, visible: str | None, number: int
) -> None:
    """As CUDA counts: an entry of CUDA_VISIBLE_DEVICES that names nothing hides all that follow."""
    driver()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count() == number


def test_a_sample_has_the_telemetry_columns_in_their_units(driver: Callable[..., Any]) -> None:
    """Milliwatts become watts, kilobytes bytes; the keys are those of the telemetry table."""
    driver()
    with opened() as probe:
        sample = probe.sample()
        assert probe.energy_j() == 12.5
    assert sample == {
        "gpu_util_pct": 40.0,
        "gpu_power_w": 150.5,
        "gpu_mem_bytes": 5,
        "gpu_sm_clock_mhz": 1980.0,
        "gpu_temperature_c": 55.0,
        "gpu_throttle_reasons": 0,
        "gpu_pcie_rx_bytes_per_s": 7000.0,
    }
    assert list(sample) == list(NO_GPU) == [column.name for column in TELEMETRY if column.name.startswith("gpu_")]
    assert set(NO_GPU.values()) == {None}


@pytest.mark.parametrize(
    ("question", "column"),
    [
        ("UtilizationRates", "gpu_util_pct"),
        ("PowerUsage", "gpu_power_w"),
        ("MemoryInfo", "gpu_mem_bytes"),
        ("ClockInfo", "gpu_sm_clock_mhz"),
        ("Temperature", "gpu_temperature_c"),
        ("PcieThroughput", "gpu_pcie_rx_bytes_per_s"),
        ("CurrentClocksEventReasons", "gpu_throttle_reasons"),
    ],
)
def test_what_is_not_supported_is_none(question: str, column: str, driver: Callable[..., Any]) -> None:
    """One field that a GPU does not have costs that field only."""
    driver(**{f"nvmlDeviceGet{question}": raising})
    sample = opened().sample()
    assert [name for name, value in sample.items() if value is None] == [column]


def test_an_old_driver_has_throttle_reasons_under_their_old_name(driver: Callable[..., Any]) -> None:
    """Before driver 535 the function had another name."""
    driver(nvmlDeviceGetCurrentClocksEventReasons=raising, nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 4)
    assert opened().sample()["gpu_throttle_reasons"] == 4


def test_a_library_that_lacks_a_function_gives_none(driver: Callable[..., Any]) -> None:
    """An older nvidia-ml-py lacks newer names."""
    module = driver()
    del module.nvmlDeviceGetTotalEnergyConsumption, module.nvmlDeviceGetCurrentClocksEventReasons
    probe = opened()
    assert probe.energy_j() is None
    assert probe.sample()["gpu_throttle_reasons"] is None


def test_pcie_traffic_is_asked_for_once_a_second(driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The question costs 20 ms: between two of them the column is None."""
    driver()
    now = iter((10 * S, 10 * S + S // 2, 11 * S))
    monkeypatch.setattr(gpu.time, "perf_counter_ns", lambda: next(now))
    probe = opened()
    assert [probe.sample()["gpu_pcie_rx_bytes_per_s"] for _ in range(3)] == [7000.0, None, 7000.0]


def test_facts_hold_nothing_that_identifies_the_board(driver: Callable[..., Any]) -> None:
    """Neither UUID nor serial number nor bus address."""
    driver()
    assert opened().facts() == {
        "name": "NVIDIA Example 0",
        "memory_bytes": 80,
        "driver": "999.1",
        "pcie_generation": 5,
        "pcie_width": 16,
        "power_limit_w": 700.0,
    }


def listing(*pids: int) -> Callable[..., Any]:
    return lambda handle: [SimpleNamespace(pid=pid) for pid in pids]


def test_processes_that_compute_are_listed_once(driver: Callable[..., Any]) -> None:
    """A process under two APIs counts once; a GPU that does not say gives None, not nobody."""
    compute, shared = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"
    driver(**{compute: listing(11, 12), shared: listing(12, 13)})
    assert opened().computing() == {11, 12, 13}
    driver(**{compute: listing(11), shared: raising})
    assert opened().computing() == {11}
    driver(**{compute: raising})
    assert opened().computing() is None


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


def test_foreign_processes_are_unknown_when_the_driver_does_not_say(driver: Callable[..., Any]) -> None:
    """Null, never 0."""
    driver(nvmlDeviceGetComputeRunningProcesses=raising)
    assert opened().foreign_processes(set(), {100}) is None


def test_a_gpu_that_falls_off_the_bus_does_not_stop_a_run(driver: Callable[..., Any]) -> None:
    """Every question may begin to fail; all answers are None then, and closing works."""
    module = driver()
    probe = opened()
    for name in [name for name in dir(module) if name.startswith("nvml")]:
        setattr(module, name, raising)
    assert probe.sample() == NO_GPU
    assert probe.energy_j() is None
    assert probe.computing() is None
    assert set(probe.facts().values()) == {None}
    probe.close()


def at(seconds: float, util: float | None = None, power: float | None = None, reasons: int | None = None) -> Any:
    return {
        "t_ns": int(seconds * S),
        "gpu_util_pct": util,
        "gpu_power_w": power,
        "gpu_sm_clock_mhz": power,
        "gpu_throttle_reasons": reasons,
    }


def test_utilization_of_a_window_begins_a_second_late() -> None:
    """Samples before and up to a second after the start describe the time before the window."""
    inside = [at(10.5, 10, 100, 4), at(11.0, 80, 200, 8), at(12.9, 90, 300, None)]
    samples = [at(9.5, 0, 10, 1), *inside, at(13.5, 0, 0, 2)]
    assert window(samples, 10 * S, 13 * S) == {
        "gpu_util_pct": 85.0,
        "gpu_power_w": 250.0,
        "gpu_sm_clock_mhz": 200.0,
        "gpu_throttle_reasons": 12,
    }


def test_a_short_window_has_clocks_but_no_averages() -> None:
    """Under 3 s the driver's averaging blurs the window: utilization and power are null, the rest is not."""
    result = window([at(10.5, 50, 100, 0), at(11.5, 50, 100, 0)], 10 * S, 13 * S - 1)
    assert result["gpu_util_pct"] is None
    assert result["gpu_power_w"] is None
    assert result["gpu_sm_clock_mhz"] == 100
    assert result["gpu_throttle_reasons"] == 0


def test_a_window_without_samples_is_null_and_its_columns_exist() -> None:
    """Nothing seen is null, never 0; the names are columns of the trials table."""
    result = window([at(1.0)], 10 * S, 20 * S)
    assert set(result.values()) == {None}
    assert set(result) <= {column.name for column in TRIALS}
