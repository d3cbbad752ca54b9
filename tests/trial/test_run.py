"""One trial: its limits, and how its window becomes a row."""

from __future__ import annotations

from array import array

import pytest
import torch

from feedrate.trial.job import Job
from feedrate.trial.loop import Window
from feedrate.trial.run import _device, _phases, _steadiness, throughput, warm_up_limits, window_limits


def job(**cell: object) -> Job:
    return Job("trial", cell={"batch_size": 4, **cell}, warmup_s=0.5, window_s=0.25, min_steps=10)


def window(steps: int, drained: int = 0) -> Window:
    """Steps of 2 ms fetch and 1 ms other, then a device that takes a while to drain."""
    ms = 1_000_000
    stamps = [at for k in range(steps) for at in (3 * k * ms, (3 * k + 2) * ms, (3 * k + 2) * ms)]
    end = 3 * steps * ms
    return Window(("fetch", "other"), 0, end + drained, drained, steps, array("q", [*stamps, end]), [b""] * steps)


@pytest.mark.parametrize(
    ("cell", "least"),
    [({}, 5), ({"num_workers": 2, "prefetch_factor": 2}, 6), ({"num_workers": 8, "prefetch_factor": 4}, 40)],
)
def test_the_warm_up_outlasts_the_prefetched_stock(cell: dict, least: int) -> None:
    """A warm-up consumes what all workers had prepared, at least five steps, and lasts at least warmup_s."""
    limits = warm_up_limits(job(**cell))
    assert (limits.window_ns, limits.least) == (500_000_000, least)


def test_a_window_ends_with_whole_bursts() -> None:
    """min_steps is rounded up to a multiple of the workers."""
    limits = window_limits(job(num_workers=4, prefetch_factor=2))
    assert (limits.window_ns, limits.least, limits.multiple) == (250_000_000, 12, 4)


@pytest.mark.parametrize(
    ("cell", "multiple"),
    [({}, 4), ({"num_workers": 3, "prefetch_factor": 2}, 12), ({"epoch_steps": 6}, 12), ({"patch_size": 16}, 2)],
)
def test_a_window_has_every_size_equally_often(cell: dict, multiple: int) -> None:
    """Where images change their size, a window ends with whole rounds of the sizes and whole bursts or epochs."""
    assert window_limits(job(**({"patch_size": 32} | cell), vary_shapes=True)).multiple == multiple


def test_draining_the_device_is_part_of_other() -> None:
    """The synchronisation behind the window is added to other, so that phases close on the wall clock."""
    found = window(10, drained=2_000_000)
    sums = _phases(found, found.durations())
    assert sum(sums.values()) == found.wall_ns
    assert sums["host_other_ns"] == 12_000_000


def test_throughput_is_samples_over_wall_clock() -> None:
    """Not a mean of rates: all samples divided by the whole wall clock; an even window is steady."""
    row = throughput(job(), window(5), window(10, drained=2_000_000))
    assert row["samples"] == 40
    assert row["samples_per_s"] == 40 / 0.032
    assert _steadiness(job(), window(10), None)["steady"]
    slow_end = window(10, drained=30_000_000)
    assert not _steadiness(job(), slow_end, None)["steady"]


def test_memory_and_how_far_the_host_ran_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA the row has what the device's memory held and what the last wait took; pinned memory where it is told."""
    told = {
        "max_memory_allocated": 1,
        "max_memory_reserved": 2,
        "mem_get_info": (70, 100),
        "host_memory_stats": {"allocated_bytes.current": 4},
    }
    for name, value in told.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    cuda = Job("trial", device="cuda")
    expected = {
        "gpu_mem_peak_bytes": 1,
        "gpu_mem_reserved_bytes": 2,
        "gpu_mem_used_bytes": 30,
        "pinned_bytes": 4,
        "host_drain_ns": 5,
    }
    assert _device(cuda, window(10, drained=5), None, {}) == expected
    monkeypatch.delattr(torch.cuda, "host_memory_stats")
    assert _device(cuda, window(10, drained=5), None, {}) == expected | {"pinned_bytes": None}
    assert _device(job(), window(10), None, {}) == {}
