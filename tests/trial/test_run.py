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
from feedrate.schema.errors import InputError
from feedrate.schema.window import WARM
from feedrate.trial import distributed
from feedrate.trial.job import Job
from feedrate.trial.loop import Window
from feedrate.trial.run import (
    allocations,
    device_times,
    host_times,
    lead_in_steps,
    steadiness,
    throughput,
    warm_up_limits,
    window_limits,
)

COUNT = 48
CELL = {"workload": "synthetic", "mode": "load", "patch_size": 8, "n_samples": COUNT, "batch_size": 4}
TWO = {"num_workers": 2, "prefetch_factor": 2}
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
    ("cell", "stock"),
    [
        ({}, 0),
        ({"num_workers": 2, "prefetch_factor": 2}, 6),
        ({"num_workers": 8, "prefetch_factor": 4}, 40),
        ({"num_workers": 8, "prefetch_factor": 4, "epoch_steps": 10}, 0),
    ],
)
def test_the_prefetched_stock_is_consumed_between_warm_up_and_window(cell: dict, stock: int) -> None:
    """After a warm-up of at least five steps and warmup_s, as many steps as there are prefetched batches."""
    limits = warm_up_limits(job(**cell))
    assert (limits.window_ns, limits.min_steps) == (500_000_000, max(5, cell.get("epoch_steps", 0)))
    assert lead_in_steps(job(**cell)) == stock


def test_a_window_ends_with_whole_bursts() -> None:
    """min_steps is rounded up to a multiple of the workers."""
    limits = window_limits(job(num_workers=4, prefetch_factor=2))
    assert (limits.window_ns, limits.min_steps, limits.multiple) == (250_000_000, 12, 4)


@pytest.mark.parametrize(
    ("cell", "multiple"),
    [({}, 4), ({"num_workers": 3, "prefetch_factor": 2}, 12), ({"epoch_steps": 6}, 12), ({"patch_size": 16}, 2)],
)
def test_a_window_has_every_size_equally_often(cell: dict, multiple: int) -> None:
    """Where images change their size, a window ends with whole rounds of the sizes and whole bursts or epochs."""
    assert window_limits(job(**({"patch_size": 32} | cell), vary_shapes=True)).multiple == multiple


def test_draining_the_device_is_part_of_other() -> None:
    """The synchronisation behind the window is added to other, so that phases close on the wall clock."""
    drained = window(10, drained=2_000_000)
    columns, _ = host_times(drained)
    assert sum(columns.values()) == drained.wall_ns
    assert columns["host_other_ns"] == 12_000_000


def test_throughput_is_samples_over_wall_clock() -> None:
    """Not a mean of rates: all samples divided by the whole wall clock; an even window is steady."""
    row = throughput(job(), window(10, drained=2_000_000))
    assert row["samples"] == 40
    assert row["samples_per_s"] == 40 / 0.032
    assert steadiness(job(), window(10), None)["steady"]
    assert not steadiness(job(), window(10, drained=30_000_000), None)["steady"]


def test_memory_and_how_far_the_host_ran_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA the row has what the device's memory held, what the last wait took, and all pinned memory owned."""
    values = {
        "max_memory_allocated": 1,
        "max_memory_reserved": 2,
        "mem_get_info": (70, 100),
        "host_memory_stats": {"active_bytes.current": 1, "allocated_bytes.current": 4},
    }
    for name, value in values.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    cuda = Job("trial", device="cuda")
    expected = {
        "gpu_mem_peak_bytes": 1,
        "gpu_mem_reserved_bytes": 2,
        "gpu_mem_used_bytes": 30,
        "pinned_bytes": 4,
        "host_drain_ns": 5,
    }
    assert device_times(cuda, window(10, drained=5), None) == (expected, {})
    assert device_times(job(), window(10), None) == ({}, {})


def test_allocations_are_counted_where_pytorch_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of the driver by both allocators; none on a CPU."""
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"num_device_alloc": 3})
    monkeypatch.setattr(torch.cuda, "host_memory_stats", lambda: {"num_host_alloc": 5})
    cuda = Job("trial", device="cuda")
    assert allocations(cuda) == {"gpu_allocations": 3, "pinned_allocations": 5}
    monkeypatch.setattr(torch.cuda, "host_memory_stats", dict)
    assert allocations(cuda) == {"gpu_allocations": 3}
    assert allocations(job()) == {}


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
    "cached samples": {**TWO, "cache": "sample"},
    "cached batches": {**TWO, "cache": "batch"},
    "collated at once": {**TWO, "collate": "fast", "normalize_on": "device"},
    "an index": {**TWO, "index_kind": "numpy", "index_entries": COUNT},
    "planted waits": {**TWO, "read_us": 500, "collate_us": 500},
    "a training step": {**TWO, "mode": "train", "step": "emulated", "step_ms": 2.0},
    "spawned": {**TWO, "start_method": "spawn"},
}


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (way == "spawned")) for way in WAYS])
def test_a_batch_is_begun_then_whole_then_fetched(way: str, trial: Callable[..., Any]) -> None:
    """By one clock for all processes; its stages lie in between; all workers are there, each at one batch at a time."""
    cell = WAYS[way]
    _, single = trial(**cell)
    begun, ended = (np.array(single[f"worker_{moment}_ns"]) for moment in ("begun", "ended"))
    fetched = np.array([0, *np.cumsum(_steps(single))[:-1]]) + np.array(single["fetch_ns"])
    assert (begun < ended).all()
    assert (ended <= fetched + single[GAPS][0]).all()
    assert (sum(np.array(single[f"worker_{stage}_ns"]) for stage in WORKER_STAGES) <= ended - begun).all()
    assert set(single["worker"]) == (set(range(cell["num_workers"])) if cell else {None})
    for worker in set(single["worker"]):
        mine = np.array([number == worker for number in single["worker"]])
        assert (ended[mine][:-1] <= begun[mine][1:]).all()


@tried
def test_batches_are_dealt_in_turn_and_the_first_were_ready_before_the_window(trial: Callable[..., Any]) -> None:
    """Worker after worker, and with a step to hide behind, moments before the window are negative."""
    _, single = trial(**WAYS["a training step"])
    assert single["worker"][:4] in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert single["worker_begun_ns"][0] < 0


def test_without_workers_a_batch_is_prepared_while_it_is_fetched(trial: Callable[..., Any]) -> None:
    """In the training process: nothing of it lies before the fetch began."""
    _, single = trial()
    steps = np.cumsum(np.array(single["fetch_ns"]) + np.array(single["other_ns"]))
    assert (np.array(single["worker_begun_ns"]) >= [0, *steps[:-1]]).all()


def test_an_epochs_workers_begin_anew(trial: Callable[..., Any]) -> None:
    """Numbers come again with each epoch, and every batch has its own moments."""
    _, single = trial(**TWO, epoch_steps=4)
    assert single["worker"] == [0, 1, 0, 1] * (len(single["worker"]) // 4)
    assert len(set(single["worker_begun_ns"])) == len(single["worker_begun_ns"])


def test_where_no_loader_runs_nothing_is_stamped(trial: Callable[..., Any]) -> None:
    """A resident batch was prepared by nobody."""
    assert "worker" not in trial(mode="compute", model="srcnn")[1]


@pytest.mark.parametrize(("workers", "kept"), [(0, False), (2, False), (2, True)])
def test_a_window_has_whole_epochs(trial: Callable[..., Any], workers: int, kept: bool) -> None:
    """It begins and ends at an epoch's border, has two epochs at least, and counts those that began in it."""
    row, _ = trial(num_workers=workers, persistent_workers=kept, epoch_steps=5)
    assert row["warmup_steps"] % 5 == 0
    assert row["warmup_steps"] >= 5
    assert row["steps"] % 5 == 0
    assert row["epochs"] == row["steps"] // 5 >= 2
    assert row["half_ratio"] is not None


def test_respawning_is_paid_in_the_wait_for_a_batch(trial: Callable[..., Any]) -> None:
    """The first step of an epoch waits for its workers to start, and the longest waits are those of the borders."""
    _, single = trial(num_workers=1, epoch_steps=10)
    fetch = np.array(single["fetch_ns"]).reshape(-1, 10)
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


@pytest.mark.parametrize("access", ["random", "sequential"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_cold_trial_reads_no_sample_twice(
    cold: Callable[..., Job], result: Result, reads: Path, workers: int, access: str
) -> None:
    """However long its window may be: the set's size ends it, while workers still have something to prepare.

    At random it reads a third of the set, so that what is left tells whether it lay in memory.
    """
    trial = cold("cold", access=access, num_workers=workers)
    row = result(trial)["row"]
    assert max(Counter(reads.read_text().split()).values()) == 1
    assert row["cached_before_pct"] == 0
    assert row["cached_after_pct"] > 0
    assert row["warmup_steps"] + row["steps"] + workers * 2 <= 240 // (3 if access == "random" else 1) // 4
    assert row["steps"] % max(1, workers) == 0
    assert row["stored_bytes"] == (trial.packed_root / "data.mdb").stat().st_size


def test_a_warm_trial_is_warm_and_goes_on(cold: Callable[..., Job], result: Result, reads: Path) -> None:
    """After a cold trial the samples are read back in before anything is timed; the window has its own length."""
    result(cold("cold"))
    reads.write_text("")
    row = result(cold("warm", window_s=0.2, min_steps=64))["row"]
    assert row["cached_before_pct"] >= 100 * WARM
    assert row["wall_ns"] >= 0.2e9
    assert max(Counter(reads.read_text().split()).values()) > 1


def test_too_few_samples_to_be_cold(cold: Callable[..., Job], result: Result) -> None:
    """Better no number than one from samples that were cached by the trial itself."""
    with pytest.raises(InputError, match=r"240 samples are too few .* expected 432 or more"):
        result(cold("cold", batch_size=16))


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("pause_s", [0.0, 0.3])
@tried
def test_a_pause_before_the_window_adds_nothing(
    pack: Callable[..., str], result: Result, monkeypatch: pytest.MonkeyPatch, pause_s: float
) -> None:
    """Batches that workers prepare while the trial makes its window ready are not counted: at most 0.5 % of them.

    Eight workers wait 80 ms for a batch of four and do nothing else: no more than 400 samples a second.
    """
    agree = distributed.agree
    monkeypatch.setattr(distributed, "agree", lambda *given: (time.sleep(pause_s), agree(*given))[1])
    cell = CELL | {"storage_format": "memmap", "read_us": 20_000, "num_workers": 8, "prefetch_factor": 2}
    packed = pack("memmap", COUNT)
    row = result(Job("trial", cell=cell, packed=packed, warmup_s=0.0, window_s=0.6, min_steps=12))["row"]
    assert 300 < row["samples_per_s"] < 400 * 1.005
