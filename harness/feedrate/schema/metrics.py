"""Metrics of a trial that are compared, and the margins of a verdict on them.

A metric is a product or quotient of recorded columns, so that logs can be added up. All is pure Python over one row:
the parent of a sweep judges which questions are still open, and loads no pandas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Factor = str | tuple[str, ...]
"""A column, or several of one unit that are added up."""


AVERAGED = frozenset(("gpu_util_pct", "gpu_power_w"))
"""Columns that NVML averages over up to a second."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A positive number of a trial."""

    up: tuple[Factor, ...]
    """Columns that are multiplied; those of a tuple are added up before."""
    down: tuple[Factor, ...]
    """Columns that they are divided by, likewise."""
    noun: str
    """What it is, as the subject of a sentence."""
    unit: str = ""
    """Of the number, after columns of ns became seconds."""
    rate: bool = False
    """Whether more of it is faster; a ratio of B to A is then told as *as fast as*."""
    least: float = 0.0
    """What counts in a column's place where it holds less: of a time that may be nothing, one that cannot be told."""

    @property
    def columns(self) -> list[str]:
        """Every column that it is computed from."""
        return [name for factor in (*self.up, *self.down) for name in _summands(factor)]

    @property
    def averaged(self) -> bool:
        """Whether the driver averages a column of it, which is null in windows too short for that."""
        return not AVERAGED.isdisjoint(self.columns)

    def of(self, trial: Mapping[str, Any]) -> float | None:
        """Compute it for a row of trials; None where a column is null, or a factor not positive."""
        value = 1.0
        for index, factor in enumerate((*self.up, *self.down)):
            multiplied = index < len(self.up)
            parts: list[Any] = [trial.get(name) for name in _summands(factor)]
            if any(term is None or not math.isfinite(term) for term in parts):
                return None
            number = max(sum(map(float, parts)), self.least if multiplied else 0.0)
            if number <= 0:
                return None
            number = number / 1e9 if _summands(factor)[0].endswith("_ns") else number
            value = value * number if multiplied else value / number
        return value


def _summands(factor: Factor) -> tuple[str, ...]:
    return (factor,) if isinstance(factor, str) else factor


_EVENT_NS = 500.0
"""What CUDA events cannot tell from nothing."""
THROUGHPUT = "throughput"
"""The one that every trial has that ended well."""
METRICS: Mapping[str, Metric] = {
    THROUGHPUT: Metric(("samples_per_s",), (), "throughput", "samples/s", rate=True),
    "data_share": Metric(("host_fetch_ns",), ("wall_ns",), "the wait for data ÷ the wall clock"),
    "data_wait": Metric(("host_fetch_ns",), ("samples",), "the data wait of a sample", "s"),
    "transform_share": Metric(
        ("worker_transform_ns",),
        (("worker_read_ns", "worker_decode_ns", "worker_transform_ns", "worker_collate_ns"),),
        "the transform's share of loading",
    ),
    "forward_on_host": Metric(
        ("host_forward_ns",), ("device_forward_ns",), "the forward pass on the host ÷ its span on the device"
    ),
    "device_forward": Metric(("device_forward_ns",), ("samples",), "the forward span of a sample on the device", "s"),
    "workers_cpu": Metric(
        ("workers_cpu_pct", "wall_ns"), ("samples",), "the workers' CPU time for a sample", "hundredths of a CPU second"
    ),
    "device_backward": Metric(
        ("device_backward_ns",), ("samples",), "the backward span of a sample on the device", "s"
    ),
    "cpu_busy": Metric(("cpu_util_pct",), (), "the busy share of all cores", "%"),
    "workers_uss": Metric(("workers_uss_end_bytes",), (), "the workers' own memory", "bytes"),
    "workers_memory": Metric(
        ("workers_uss_end_bytes",), ("workers_uss_start_bytes",), "the workers' memory after the window ÷ before it"
    ),
    "switches": Metric(
        (("voluntary_switches", "involuntary_switches"),),
        ("samples",),
        "context switches for a sample",
        "switches/sample",
    ),
    "startup": Metric(("startup_ns",), (), "the time to the first batch", "s"),
    "gpu_util": Metric(("gpu_util_pct",), (), "GPU utilization", "%"),
    "throughput_by_util": Metric(
        ("samples_per_s",), ("gpu_util_pct",), "throughput for a per cent of GPU utilization", "samples/s"
    ),
    "gpu_power": Metric(("gpu_power_w",), (), "the GPU's power", "W"),
    "gpu_mem_peak": Metric(("gpu_mem_peak_bytes",), (), "peak GPU memory in tensors", "bytes"),
    "gpu_mem_reserved": Metric(("gpu_mem_reserved_bytes",), (), "GPU memory that PyTorch reserved", "bytes"),
    "gpu_mem_used": Metric(("gpu_mem_used_bytes",), (), "GPU memory in use", "bytes"),
    "exposed_copy": Metric(
        ("device_h2d_exposed_ns",), ("samples",), "the exposed copy of a sample", "s", least=_EVENT_NS
    ),
    "copy_rate": Metric(
        ("batch_bytes", "steps"), ("device_h2d_ns",), "the rate of calls that copy to the device", "bytes/s"
    ),
    "stored": Metric(("stored_bytes",), (), "the size on disk", "bytes"),
    "mem_available": Metric(("mem_available_bytes",), (), "memory that is available on the host", "bytes"),
}
"""By the name that a claim uses."""

SAME = (0.97, 1.03)
"""An interval inside is no difference."""
CONFIRMED_OVER = 1.01
"""An interval wholly above is a difference in the claimed direction: "above 1" confirms a true 1 % too often."""
REFUTED_UNDER = 0.99
"""An interval wholly below is one in the other direction."""
FIGURE_WITHIN = 0.8
"""A source's figure, to which nobody gave a spread, is taken to be right within a fifth."""


def least_of(figure: float, says: str) -> float:
    """The ratio, or level, from which on an effect confirms a source's figure, in the direction of what is claimed."""
    return figure / FIGURE_WITHIN if says == "less" else figure * FIGURE_WITHIN


def room(log: float) -> float:
    """Say how wide the interval around the log of a ratio may be, as a half-width, before it is inconclusive."""
    same = min(log - math.log(SAME[0]), math.log(SAME[1]) - log)
    return max(same, log - math.log(CONFIRMED_OVER), math.log(REFUTED_UNDER) - log)
