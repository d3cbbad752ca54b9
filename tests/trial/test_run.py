"""One trial: its limits, how its window becomes a row, and when its batches were prepared, and by whom."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beside import tried

from feedrate.formats import Reader
from feedrate.schema import plugins
from feedrate.schema.columns import PHASES, STEPS, WORKER_STAGES
from feedrate.trial import distributed, run
from feedrate.trial.job import Job
from feedrate.trial.loop import Window

COUNT = 48
CELL = {"workload": "synthetic", "mode": "load", "patch_size": 8, "n_samples": COUNT, "batch_size": 4}
TWO = {"num_workers": 2, "prefetch_factor": 2}
EIGHT = {"num_workers": 8, "prefetch_factor": 4}
GAPS = "gaps_ns"
"""Of the window, what lies in no phase: a process can lose its core between two stamps."""
Single = dict[str, list[Any]]
Result = Callable[[Job], dict[str, Any]]


def job(**cell: object) -> Job:
    return Job("trial", cell={"batch_size": 4, **cell}, warmup_s=0.5, window_s=0.25, min_steps=10)


def window(steps: int, drained: int = 0) -> Window:
    """Steps of 2 ms fetch and 1 ms other, then a device that takes a while to drain."""
    ms = 1_000_000
    stamps = [at for k in range(steps) for at in (3 * k * ms, (3 * k + 2) * ms, (3 * k + 2) * ms)]
    end = 3 * steps * ms
    return Window(("fetch", "other"), 0, end + drained, drained, steps, array("q", [*stamps, end]), [b""] * steps)


@pytest.mark.parametrize(
    ("cell", "warm_up", "stock"), [({}, 5, 0), (TWO, 5, 6), (EIGHT, 5, 40), ({**EIGHT, "epoch_steps": 10}, 10, 0)]
)
def test_the_prefetched_stock_is_consumed_between_warm_up_and_window(cell: dict, warm_up: int, stock: int) -> None:
    """After a warm-up of at least five steps and warmup_s, as many steps as there are prefetched batches."""
    limits = run.warm_up_limits(job(**cell))
    assert (limits.window_ns, limits.min_steps) == (500_000_000, warm_up)
    assert run.lead_in_steps(job(**cell)) == stock


@pytest.mark.parametrize(
    ("cell", "least", "multiple"),
    [
        ({"num_workers": 4, "prefetch_factor": 2}, 12, 4),
        ({"vary_shapes": True}, 12, 4),
        ({"vary_shapes": True, "num_workers": 3, "prefetch_factor": 2}, 12, 12),
        ({"vary_shapes": True, "epoch_steps": 6}, 12, 12),
        ({"vary_shapes": True, "patch_size": 16}, 10, 2),
    ],
)
def test_a_window_ends_with_whole_bursts_and_rounds(cell: dict, least: int, multiple: int) -> None:
    """On a multiple of the workers, or of an epoch, and of the sizes that images have in turn."""
    limits = run.window_limits(job(**({"patch_size": 32} | cell)))
    assert (limits.window_ns, limits.min_steps, limits.multiple) == (250_000_000, least, multiple)


def test_throughput_is_samples_over_wall_clock() -> None:
    """Not a mean of rates: all samples over the whole wall clock, in which draining the device is other."""
    drained = window(10, drained=2_000_000)
    row = run.throughput(job(), drained)
    assert (row["samples"], row["samples_per_s"]) == (40, 40 / 0.032)
    columns, _ = run.host_times(drained)
    assert (sum(columns.values()), columns["host_other_ns"]) == (drained.wall_ns, 12_000_000)
    assert run.steadiness(job(), window(10), None)["steady"]
    assert not run.steadiness(job(), window(10, drained=30_000_000), None)["steady"]


def test_what_only_cuda_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device's memory held, what the last wait took, all pinned memory owned, calls of the driver so far."""
    values = {
        "max_memory_allocated": 1,
        "max_memory_reserved": 2,
        "mem_get_info": (70, 100),
        "memory_stats": {"num_device_alloc": 3},
        "host_memory_stats": {"active_bytes.current": 1, "allocated_bytes.current": 4},
    }
    for name, value in values.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    cuda, memory = Job("trial", device="cuda"), {"gpu_mem_peak_bytes": 1, "gpu_mem_reserved_bytes": 2}
    memory |= {"gpu_mem_used_bytes": 30, "pinned_bytes": 4, "host_drain_ns": 5}
    assert run.device_times(cuda, window(10, drained=5), None) == (memory, {})
    assert run.device_times(job(), window(10), None) == ({}, {})
    assert run.allocations(cuda) == {"gpu_allocations": 3}, "this version of PyTorch does not count the other"
    assert run.allocations(job()) == {}


@pytest.fixture
def trial(pack: Callable[..., str], result: Result) -> Callable[..., tuple[dict[str, Any], Single]]:
    """Runs a short trial in this process and gives its row and its single steps, with ``GAPS``."""

    def make(storage_format: str = "memmap", **cell: object) -> tuple[dict[str, Any], Single]:
        cell = CELL | {"storage_format": storage_format} | cell
        packed = pack(storage_format, COUNT)
        answer = result(Job("trial", cell=cell, packed=packed, seed=7, warmup_s=0.0, window_s=1e-4, min_steps=12))
        row, single = answer["row"], answer["steps"]
        assert set(single) <= {column.name for column in STEPS}
        return row, single | {GAPS: [row["wall_ns"] - int(_steps(single).sum())]}

    return make


def _steps(single: Single) -> np.ndarray:
    """How long each step took: all of its phases together."""
    return np.array([single[f"{phase}_ns"] for phase in PHASES if f"{phase}_ns" in single]).sum(axis=0)


WAYS: dict[str, dict[str, Any]] = {
    "no workers": {},
    "processes": TWO,
    "threads": {**TWO, "loader": "threads"},
    "a stream": {**TWO, "storage_format": "webdataset"},
    "cached batches": {**TWO, "cache": "batch"},
    "collated at once": {**TWO, "collate": "fast", "normalize_on": "device"},
    "an index": {**TWO, "index_kind": "numpy", "index_entries": COUNT},
    "a training step": {**TWO, "mode": "train", "step": "emulated", "step_ms": 2.0},
}
QUICK = ("no workers", "processes", "threads", "a stream")


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (way not in QUICK)) for way in WAYS])
def test_a_batch_is_begun_then_whole_then_fetched(way: str, trial: Callable[..., Any]) -> None:
    """By one clock for all processes; its stages lie in between; all workers are there, each at one batch at a time."""
    cell = WAYS[way]
    _, single = trial(**cell)
    begun, ended = (np.array(single[f"worker_{moment}_ns"]) for moment in ("begun", "ended"))
    asked = np.array([0, *np.cumsum(_steps(single))[:-1]])
    assert (begun < ended).all()
    assert (ended <= asked + np.array(single["fetch_ns"]) + single[GAPS][0]).all()
    assert (sum(np.array(single[f"worker_{stage}_ns"]) for stage in WORKER_STAGES) <= ended - begun).all()
    assert set(single["worker"]) == (set(range(cell["num_workers"])) if cell else {None})
    if not cell:
        assert (begun >= asked).all(), "the training process prepares a batch while it fetches it"
    for worker in set(single["worker"]):
        mine = np.array([number == worker for number in single["worker"]])
        assert (ended[mine][:-1] <= begun[mine][1:]).all()


@tried
def test_batches_are_dealt_in_turn_and_the_first_were_ready_before_the_window(trial: Callable[..., Any]) -> None:
    """Worker after worker, and with a step to hide behind, moments before the window are negative."""
    _, single = trial(**WAYS["a training step"])
    assert single["worker"][:4] in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert single["worker_begun_ns"][0] < 0


@pytest.mark.parametrize(
    ("workers", "kept", "loader"), [(0, False, "torch"), (2, False, "torch"), (2, True, "torch"), (2, True, "threads")]
)
def test_a_window_has_whole_epochs(trial: Callable[..., Any], workers: int, kept: bool, loader: str) -> None:
    """It begins and ends at an epoch's border, has two epochs at least, and counts those that began in it."""
    row, single = trial(num_workers=workers, persistent_workers=kept, epoch_steps=6, loader=loader)
    assert row["warmup_steps"] % 6 == row["steps"] % 6 == 0 < row["warmup_steps"]
    assert row["epochs"] == row["steps"] // 6 >= 2
    assert row["half_ratio"] is not None
    assert single["worker"] == [0 if workers else None, 1 if workers else None] * (row["steps"] // 2)
    if workers and not kept:
        fetch = np.array(single["fetch_ns"]).reshape(-1, 6)
        assert np.median(fetch[:, 0]) > 3 * np.median(fetch[:, 1:])


@pytest.fixture
def cold(pack: Callable[..., str], tmp_path: Path) -> Callable[..., Job]:
    """Makes trials of an LMDB set of 240 samples."""
    packed = pack("lmdb", 240, 16, tmp_path)

    def make(page_cache: str, window_s: float = 30.0, min_steps: int = 4, **cell: object) -> Job:
        cell = CELL | {"storage_format": "lmdb", "patch_size": 16, "n_samples": 240, "page_cache": page_cache} | cell
        return Job("trial", cell=cell, packed=packed, warmup_s=0.0, window_s=window_s, min_steps=min_steps)

    return make


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every read of this process and its workers, a line each."""
    log = tmp_path / "reads"
    reader = plugins.load("feedrate.formats", "lmdb").LmdbReader
    read = reader.read

    def noted(self: Reader, index: int) -> Any:
        with log.open("ab", buffering=0) as file:
            file.write(f"{index}\n".encode())
        return read(self, index)

    monkeypatch.setattr(reader, "read", noted)
    return log


@pytest.mark.parametrize(("workers", "access"), [(0, "random"), (2, "sequential")])
def test_a_cold_trial_reads_no_sample_twice(
    cold: Callable[..., Job], result: Result, reads: Path, workers: int, access: str
) -> None:
    """However long its window may be: the set's size ends it, while workers still have something to prepare."""
    trial = cold("cold", access=access, num_workers=workers)
    row = result(trial)["row"]
    assert max(Counter(reads.read_text().split()).values()) == 1
    assert row["cached_before_pct"] == 0 < row["cached_after_pct"]
    assert row["warmup_steps"] + row["steps"] + workers * 2 <= 240 // (3 if access == "random" else 1) // 4
    assert row["steps"] % max(1, workers) == 0
    assert row["stored_bytes"] == (trial.packed_root / "data.mdb").stat().st_size


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@tried
def test_a_pause_before_the_window_adds_nothing(
    pack: Callable[..., str], result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that workers prepare while the trial makes its window ready are not counted: at most 0.5 % of them."""
    agree = distributed.agree
    monkeypatch.setattr(distributed, "agree", lambda *given: (time.sleep(0.3), agree(*given))[1])
    cell = CELL | {"storage_format": "memmap", "read_us": 20_000, "num_workers": 8, "prefetch_factor": 2}
    packed = pack("memmap", COUNT)
    row = result(Job("trial", cell=cell, packed=packed, warmup_s=0.0, window_s=0.6, min_steps=12))["row"]
    assert 300 < row["samples_per_s"] < 400 * 1.005
