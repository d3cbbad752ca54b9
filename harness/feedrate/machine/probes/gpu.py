"""The GPU as its driver sees it: NVML, sampled from outside the measured process.

NVML's utilization is the share of time in which *a* kernel ran, averaged by the driver over a sixth of a second to a
second: it says nothing of how full the GPU was, and samples taken less than a second after a window began describe
the time before it. What a GPU, a driver or a container does not answer is None, never 0. Source: NVML API reference
(nvmlDeviceQueries). PCIe traffic costs 20 ms of waiting a question, so it is asked at most once a second.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import reduce
from itertools import takewhile
from types import ModuleType
from typing import Any, Literal

from feedrate.schema.columns import TELEMETRY

Sample = Mapping[str, float | int | None]

NO_GPU: dict[str, float | int | None] = {column.name: None for column in TELEMETRY if column.name.startswith("gpu_")}
"""The telemetry columns of the GPU where there is none."""
SETTLE_NS = 1_000_000_000
"""NVML averages utilization over up to this long, in nanoseconds."""
LEAST_WINDOW_NS = 3_000_000_000
"""Shortest window whose utilization is reported, in nanoseconds."""
PCIE_EVERY_NS = 1_000_000_000
"""How often PCIe traffic is asked for, in nanoseconds."""


def load() -> ModuleType | None:
    """Return ``pynvml``, initialised; None without a driver, as the dynamic loader tells in 0.2 ms, an import in 20."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        import pynvml
    except (ImportError, OSError):
        return None
    nvml: ModuleType = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


@contextmanager
def _loaded() -> Iterator[Any]:
    """As ``load`` gives it, shut down at the end; a GPU that does not answer ends what is asked of it."""
    if (nvml := load()) is None:
        yield None
        return
    try:
        with suppress(nvml.NVMLError):
            yield nvml
    finally:
        nvml.nvmlShutdown()


def _handle(nvml: ModuleType, entry: str) -> Any | None:
    """The GPU that an entry of CUDA_VISIBLE_DEVICES names.

    An index counts as NVML counts, by bus address; CUDA does so too when all GPUs are alike or when CUDA_DEVICE_ORDER
    is PCI_BUS_ID. An identifier may be shortened, as CUDA allows, to what only one GPU begins with.
    """
    try:
        number = nvml.nvmlDeviceGetCount()
        if entry.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(entry)) if int(entry) < number else None
        if entry.startswith("MIG-"):
            return nvml.nvmlDeviceGetHandleByUUID(entry)
        if not entry.startswith("GPU-"):
            return None
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(number))
        matching = [handle for handle in handles if nvml.nvmlDeviceGetUUID(handle).startswith(entry)]
    except nvml.NVMLError:
        return None
    return matching[0] if len(matching) == 1 else None


def _visible(nvml: ModuleType) -> list[Any]:
    """Find the GPUs that CUDA will see: those that CUDA_VISIBLE_DEVICES names before its first unknown entry."""
    entries = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        names = map(str, range(nvml.nvmlDeviceGetCount())) if entries is None else entries.split(",")
    except nvml.NVMLError:
        return []
    handles = (_handle(nvml, name.strip()) for name in names)
    return list(takewhile(lambda handle: handle is not None, handles))


def installed() -> list[tuple[str, int]]:
    """List the (name, memory in bytes) of all GPUs of the machine, whatever CUDA_VISIBLE_DEVICES hides."""
    gpus: list[tuple[str, int]] = []
    with _loaded() as nvml:
        for index in range(nvml.nvmlDeviceGetCount() if nvml else 0):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append((str(nvml.nvmlDeviceGetName(handle)), int(nvml.nvmlDeviceGetMemoryInfo(handle).total or 0)))
    return gpus


def count() -> int:
    """Count the GPUs that CUDA will see, as NVML lists them; 0 without a driver."""
    with _loaded() as nvml:
        return len(_visible(nvml)) if nvml else 0


def device() -> Literal["cuda", "cpu"]:
    """Tell which device a plan is made for: ``cuda`` where NVML finds a GPU that CUDA will see, else ``cpu``."""
    return "cuda" if count() else "cpu"


class GpuProbe(AbstractContextManager["GpuProbe"]):
    """Watches the first GPU that CUDA will see. Open it with ``GpuProbe.open()``; close it, or use it in a ``with``."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._pcie_asked_ns = -PCIE_EVERY_NS

    @classmethod
    def open(cls) -> GpuProbe | None:
        """Open the probe; None without NVML, without a GPU, or when CUDA_VISIBLE_DEVICES hides all of them."""
        nvml = load()
        if nvml is None:
            return None
        if handles := _visible(nvml):
            return cls(nvml, handles[0])
        nvml.nvmlShutdown()
        return None

    def __exit__(self, *_: object) -> None:
        self.close()

    def follow(self, uuid: str) -> bool:
        """Watch the GPU that CUDA knows by a UUID, in whatever order NVML lists them; False if it has none.

        A MIG instance that is watched stays so where CUDA tells the UUID of its GPU. A driver that names no UUIDs is
        not contradicted. The UUID has no prefix, as ``torch.cuda.get_device_properties(0).uuid``.
        """
        parent = self._device("DeviceHandleFromMigDeviceHandle")
        watched = (self._handle,) if parent is None else (self._handle, parent)
        handles = [*watched, *self._all()]
        names = [self._of(handle, "UUID") for handle in handles]
        if not any(names):
            return True
        for handle, name in zip(handles, names, strict=True):
            if uuid in (name or ""):
                self._handle = self._handle if handle in watched else handle
                return True
        return False

    def _all(self) -> Iterator[Any]:
        """Every GPU that NVML lists, and after it its MIG instances."""
        for index in range(self._ask(self._nvml.nvmlDeviceGetCount) or 0):
            if (handle := self._of(index, "HandleByIndex")) is None:
                continue
            yield handle
            instances = range(self._of(handle, "MaxMigDeviceCount") or 0)
            handles = (self._of(handle, "MigDeviceHandleByIndex", instance) for instance in instances)
            yield from (mig for mig in handles if mig is not None)

    def close(self) -> None:
        """Shut NVML down; a driver that is gone by then is no matter."""
        self._ask(self._nvml.nvmlShutdown)

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any | None:
        try:
            return question(*arguments)
        except (self._nvml.NVMLError, self._nvml.NVMLLibraryMismatchError, AttributeError):
            return None  # a mismatch is a driver that is older than the bindings

    def _device(self, name: str, *arguments: Any) -> Any | None:
        """Ask NVML about the device; ``name`` without ``nvmlDeviceGet``. None when it is not supported."""
        return self._of(self._handle, name, *arguments)

    def _number(self, name: str, *arguments: Any, over: int = 1, field: str = "") -> float | None:
        """One number, divided; of an answer that has several, a field: those that a device has not are None."""
        answer = self._device(name, *arguments)
        value = getattr(answer, field, None) if field else answer
        return None if value is None else float(value) / over

    def _bytes(self, field: str) -> int | None:
        value = getattr(self._device("MemoryInfo"), field, None)
        return None if value is None else int(value)

    def _of(self, handle: Any, name: str, *arguments: Any) -> Any | None:
        question = getattr(self._nvml, f"nvmlDeviceGet{name}", None)
        return None if question is None else self._ask(question, handle, *arguments)

    def sample(self) -> dict[str, float | int | None]:
        """Look once: the telemetry columns of the GPU; None for what is not supported, and PCIe within a second."""
        reasons = self._device("CurrentClocksEventReasons")
        if reasons is None:  # its name before driver 535
            reasons = self._device("CurrentClocksThrottleReasons")
        return {
            "gpu_util_pct": self._number("UtilizationRates", field="gpu"),
            "gpu_power_w": self._number("PowerUsage", over=1000),
            "gpu_mem_bytes": self._bytes("used"),
            "gpu_sm_clock_mhz": self._number("ClockInfo", self._nvml.NVML_CLOCK_SM),
            "gpu_temperature_c": self._number("Temperature", self._nvml.NVML_TEMPERATURE_GPU),
            "gpu_throttle_reasons": None if reasons is None else int(reasons),
            "gpu_pcie_rx_bytes_per_s": self._pcie_rx(),
        }

    def _pcie_rx(self) -> float | None:
        now = time.perf_counter_ns()
        if now - self._pcie_asked_ns < PCIE_EVERY_NS:
            return None
        self._pcie_asked_ns = now
        kilobytes = self._number("PcieThroughput", self._nvml.NVML_PCIE_UTIL_RX_BYTES)
        return None if kilobytes is None else kilobytes * 1000

    def energy_j(self) -> float | None:
        """Energy that the GPU has used since its driver was loaded, in joules (Volta and later)."""
        return self._number("TotalEnergyConsumption", over=1000)

    def facts(self) -> dict[str, str | int | float | None]:
        """Tell what the GPU is, and nothing that identifies it; of PCIe the most, as an idle link falls back."""
        return {
            "name": self._device("Name"),
            "memory_bytes": self._bytes("total"),
            "driver": self._ask(self._nvml.nvmlSystemGetDriverVersion),
            "pcie_generation": self._device("MaxPcieLinkGeneration"),
            "pcie_width": self._device("MaxPcieLinkWidth"),
            "power_limit_w": self._number("EnforcedPowerLimit", over=1000),
        }

    def computing(self) -> frozenset[int] | None:
        """List the processes that compute on the GPU, in a container by the host's numbers; None if NVML is silent."""
        computing = self._device("ComputeRunningProcesses")
        if computing is None:
            return None
        shared = self._device("MPSComputeRunningProcesses") or []
        return frozenset(process.pid for process in (*computing, *shared))

    def foreign_processes(self, before: Collection[int] | None, ours: Collection[int]) -> int | None:
        """Count the processes that compute on the GPU beside a trial of ours, by who computed before it.

        Where one of ours is listed, numbers mean what they mean here, and all others are foreign. Else NVML counts as
        the host does: whoever was there before is foreign, and of the newcomers one may be the trial. None when NVML
        does not say, or lists nobody at all while a trial runs: it may hide them.
        """
        now = self.computing()
        if not now or before is None:
            return None
        if not now.isdisjoint(ours):
            return len(now.difference(ours))
        newcomers = len(now.difference(before))
        return len(now) - min(newcomers, 1)


def _mean(samples: Sequence[Sample], column: str) -> float | None:
    values = [value for sample in samples if (value := sample.get(column)) is not None]
    return sum(values) / len(values) if values else None


def window(samples: Sequence[Sample], start_ns: int, end_ns: int) -> dict[str, float | int | None]:
    """Sum a window's samples, each with the ``t_ns`` when it was taken, up into the trials columns of the GPU.

    Utilization and power, which the driver averages over up to a second, are means of the samples taken at least
    ``SETTLE_NS`` after the start, None for a window under ``LEAST_WINDOW_NS``; the clock is a mean, reasons are or-ed.
    Energy is the difference of two ``energy_j``; the peak of the caching allocator is the child's to tell.
    """
    inside = [sample for sample in samples if start_ns <= (sample["t_ns"] or 0) <= end_ns]
    settled = [sample for sample in inside if (sample["t_ns"] or 0) >= start_ns + SETTLE_NS]
    long = end_ns - start_ns >= LEAST_WINDOW_NS
    reasons = [int(bits) for sample in inside if (bits := sample.get("gpu_throttle_reasons")) is not None]
    return {
        "gpu_util_pct": _mean(settled, "gpu_util_pct") if long else None,
        "gpu_power_w": _mean(settled, "gpu_power_w") if long else None,
        "gpu_sm_clock_mhz": _mean(inside, "gpu_sm_clock_mhz"),
        "gpu_throttle_reasons": reduce(int.__or__, reasons) if reasons else None,
    }
