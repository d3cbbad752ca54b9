"""The external clock and the trial beside it; what timing costs."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import repeat
from typing import Any

import pytest
import torch
from beside import tried
from torch.utils.data import default_collate

from feedrate.formats import Reader, Sample
from feedrate.loaders import Batch, StampedCollate, StampedDataset
from feedrate.trial import bench, loop
from feedrate.trial.bench import EPOCH_STEPS, EPOCHS, run_witness_trial
from feedrate.trial.job import Job, Reporter
from feedrate.trial.plants import LATE_NS
from feedrate.trial.stages import Stage
from feedrate.trial.witness import CLOSES, EPOCHS_BEGIN, EPOCHS_END, OPENS

CELL = {"workload": "synthetic", "storage_format": "lmdb", "n_samples": 64, "patch_size": 8, "batch_size": 4}
CELL |= {"mode": "train", "step": "emulated", "step_ms": 3.0}


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
@tried
def test_a_witnessed_trial_reports_all_its_steps(pack: Callable[..., str], pipe: tuple[int, int], workers: int) -> None:
    """Every border of warm-up and window is there; our clock lies within the witness' and agrees with it."""
    job = Job("witness", cell=CELL | {"num_workers": workers}, packed=pack("lmdb", 64), warmup_s=0.05, window_s=0.2)
    run_witness_trial(job, Reporter(pipe[1]))
    first, witness, result = map(json.loads, os.read(pipe[0], 1 << 20).splitlines())
    assert (first["event"], witness["event"], result["event"]) == ("first_batch", "witness", "result")
    assert result["iterated"] < first["t_ns"] <= result["warm"][0]
    borders = [*result["warm"], *result["window"]]
    assert borders == sorted(borders)
    assert len(result["window"]) == result["steps"] + 1
    assert len(result["warm"]) == result["warmup_steps"] + 1
    assert result["started"] <= result["window"][0] < result["window"][-1] <= result["ended"]
    assert result["wall_ns"] == result["ended"] - result["started"]
    stamps = witness["stamps"]
    assert stamps[CLOSES] - stamps[OPENS] == pytest.approx(result["wall_ns"], rel=0.1)
    assert result["synchronised"] is None
    spans = [end - begin for begin, end in result["epochs"]]
    assert (len(spans), result["epoch_steps"]) == (EPOCHS, EPOCH_STEPS)
    assert min(spans) >= EPOCH_STEPS * 3e6 - LATE_NS
    assert result["epochs"][1][0] > result["epochs"][0][1]
    assert stamps[EPOCHS_END] - stamps[EPOCHS_BEGIN] > sum(spans) + workers * EPOCHS * 1e6


@tried
def test_a_steps_stamps_cost_less_than_ten_microseconds() -> None:
    """Three stages that do nothing, against the same calls in a plain loop."""
    row = [Stage(phase, lambda state: state) for phase in ("forward", "backward", "optimizer")]
    limits, took = loop.Limits(0, 2000, 1, 2000), []
    for _ in range(15):
        timed = loop.measure(repeat(Batch((), b"")), row, limits, lambda: None).wall_ns
        begun = time.perf_counter_ns()
        for batch in repeat(Batch((), b""), 2000):
            reduce(lambda state, stage: stage.run(state), row, batch)
        took.append((timed / 2000, (time.perf_counter_ns() - begun) / 2000))
    timed_ns, bare_ns = map(min, zip(*took, strict=True))
    assert 0 < timed_ns - bare_ns < 10_000


@tried
def test_a_workers_stamps_cost_less_than_a_hundred_microseconds_a_batch() -> None:
    """Reading, decoding and collating 32 samples that cost nothing, against the same without stamps."""

    class Empty(Reader):
        def __init__(self) -> None:
            """There is no folder to open."""

        def read(self, index: int) -> int:
            return index

        def decode(self, raw: int) -> Sample:
            return ()

    fields = (torch.zeros(3, 16, 16), torch.zeros(3, 16, 16))
    stamped = StampedDataset(Empty(), lambda _: fields)
    sides = (stamped, StampedCollate(stamped)), ([fields] * 32, default_collate)

    def batches_ns(dataset: Any, collate: Callable[[list[Any]], Any]) -> int:
        begun = time.perf_counter_ns()
        for _ in range(50):
            collate([dataset[index] for index in range(32)])
        return time.perf_counter_ns() - begun

    took = [[batches_ns(*side) / 50 for side in sides] for _ in range(15)]
    with_stamps, without = map(min, zip(*took, strict=True))  # the quickest: other work holds up some of them
    assert 0 < with_stamps - without < 100_000


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_training_is_compared_with_itself(pack: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair gives one ratio of step times, over real samples; where time is up there are fewer pairs."""
    cell = {"mode": "train", "storage_format": "lmdb", "n_samples": 32, "patch_size": 16, "batch_size": 4}
    job = Job("instrumentation", cell=cell, packed=pack("lmdb", 32, 16))
    monkeypatch.setattr(bench, "PAIRS", 5)
    ratios = bench.training_ratios(job)
    assert len(ratios) == 5
    assert 0.2 < statistics.median(ratios) < 5
    monkeypatch.setattr(bench, "LEAST_PAIRS", 2)
    monkeypatch.setattr(bench, "TRAINING_S", 0.0)
    assert len(bench.training_ratios(job)) == 2
