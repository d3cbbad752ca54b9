"""What timing costs: the measurement must see a cost that is there."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest
from beside import tried

from feedrate.trial import instrumentation, loader
from feedrate.trial.instrumentation import loop_costs, stamp_costs
from feedrate.trial.job import Job
from feedrate.trial.loader import Batch, StampedCollate
from feedrate.trial.prepare import dataset_root, prepare
from feedrate.trial.stages import Stage


@tried
def test_the_loops_cost_is_small_and_there() -> None:
    """Stamping costs something, and less than ten microseconds a step."""
    costs = loop_costs(9, 500)
    assert len(costs) == 9
    assert 0 < statistics.median(costs) < 10_000


@tried
def test_a_dear_instrument_is_seen() -> None:
    """Half a millisecond that an instrument adds to each step is found again."""

    def slowed(row: list[Stage]) -> list[Stage]:
        def run(state: object) -> object:
            time.sleep(0.0005)
            return row[0].run(state)

        return [Stage(row[0].phase, run), *row[1:]]

    assert 500_000 < statistics.median(loop_costs(3, 40, slowed)) < 2_000_000


@tried
def test_what_both_loops_do_is_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages that take a millisecond take it in both loops: the difference stays far below."""
    monkeypatch.setattr(instrumentation, "_pass_on", lambda _: time.sleep(0.001))
    assert abs(statistics.median(loop_costs(5, 10))) < 1_000_000


@tried
def test_dear_stamps_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two milliseconds that the stamping collation adds to a batch are found again; without them the cost is small."""
    cheap = statistics.median(stamp_costs(9, 20))
    collate = StampedCollate.__call__

    def slowed(self: StampedCollate, samples: list[loader.Fields]) -> Batch:
        time.sleep(0.002)
        return collate(self, samples)

    assert cheap < 500_000
    with monkeypatch.context() as patch:
        patch.setattr(StampedCollate, "__call__", slowed)
        assert statistics.median(stamp_costs(3, 20)) > 1_000_000


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_training_is_compared_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair gives one ratio of step times, over real samples; where time is up there are fewer pairs."""
    cell = {"mode": "train", "storage_format": "lmdb", "n_samples": 32, "patch_size": 16, "batch_size": 4}
    job = Job("instrumentation", cell=cell, data_root=str(tmp_path))
    prepare(job.data_spec(), "lmdb", tmp_path, lambda *_: None)
    monkeypatch.setattr(instrumentation, "PAIRS", 5)
    packed = str(dataset_root(tmp_path, job.data_spec(), "lmdb"))
    ratios = instrumentation.training_ratios(Job("instrumentation", cell=cell, packed=packed))
    assert len(ratios) == 5
    assert 0.2 < statistics.median(ratios) < 5
    monkeypatch.setattr(instrumentation, "LEAST_PAIRS", 2)
    monkeypatch.setattr(instrumentation, "TRAINING_S", 0.0)
    assert len(instrumentation.training_ratios(Job("instrumentation", cell=cell, packed=packed))) == 2
