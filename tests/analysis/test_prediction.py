"""What the model says of cells that it was not fitted to; truth is made by the model itself, so that it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials

from feedrate.analysis.pipeline import Pace, Pipeline, simulate
from feedrate.analysis.prediction import COLUMNS, held_out
from feedrate.schema.columns import STEPS

MS = 1e6
CORES = 2.0
KEPT = 50
BLOCKS = 4
EMULATED: dict[str, Any] = {"step": "emulated", "step_ms": 10.0}


@dataclass(frozen=True, slots=True)
class Truth:
    """A loader that is known; milliseconds."""

    read_per_sample: float = 1.0
    compute_per_sample: float = 0.1
    compute_per_batch: float = 1.0
    unstamped: float = 0.3
    receive_wait: float = 0.0
    receive_compute: float = 0.5
    step: float = 0.0

    def pace(self, batch_size: int, num_workers: int) -> Pace:
        """What a window would show."""
        compute = self.compute_per_batch + batch_size * self.compute_per_sample
        pipeline = Pipeline(
            wait_ns=np.array([batch_size * self.read_per_sample * MS]),
            compute_ns=np.array([(compute + (self.unstamped if num_workers else 0)) * MS]),
            receive_wait_ns=self.receive_wait * MS,
            receive_compute_ns=self.receive_compute * MS,
            step_ns=self.step * MS,
            step_cores=0.0,
            cores=CORES,
        )
        return simulate(pipeline, num_workers)

    def columns(self, batch_size: int, num_workers: int) -> dict[str, float]:
        """Sums over a window of ``KEPT`` steps."""
        pace = self.pace(batch_size, num_workers)
        compute = self.compute_per_batch + batch_size * self.compute_per_sample
        main, workers = (self.receive_compute, compute + self.unstamped) if num_workers else (compute, 0.0)
        return {
            "steps": KEPT,
            "wall_ns": KEPT * pace.step_ns,
            "host_fetch_ns": KEPT * pace.data_wait_ns,
            "host_forward_ns": KEPT * self.step * MS,
            "worker_read_ns": KEPT * batch_size * self.read_per_sample * MS,
            "worker_decode_ns": KEPT * (compute - self.compute_per_batch) * MS,
            "worker_transform_ns": 0.0,
            "worker_collate_ns": KEPT * self.compute_per_batch * MS,
            "main_cpu_pct": 100 * main * MS / pace.step_ns,
            "workers_cpu_pct": 100 * workers * MS / pace.step_ns,
        }


def run_of(
    truth: Truth, workers: Sequence[int], sizes: Sequence[int] = (16,), **axes: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trials and steps of a run in which such a loader was swept."""
    frames = []
    for size in sizes:
        for count in workers:
            columns = truth.columns(size, count)
            rate = size * KEPT * 1e9 / columns["wall_ns"]
            rates = [rate * (1 + 0.01 * (-1) ** block) for block in range(BLOCKS)]
            frames.append(make_trials([({**axes, "num_workers": count, "batch_size": size}, rates)]).assign(**columns))
    trials = pd.concat(frames, ignore_index=True)
    trials["trial_id"] = [f"trial {place}" for place in range(len(trials))]
    stamps = [
        {"run_id": "run", "trial_id": row["trial_id"], "step": step}
        | {name: row[name] / KEPT for name in trials.columns if name.startswith("worker_") and name.endswith("_ns")}
        for row in trials.to_dict("records")
        for step in range(3)
    ]
    return trials, pd.DataFrame(stamps, columns=[column.name for column in STEPS])


def of_cells(found: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """Predictions beside the workers and batch sizes that they are about."""
    return found.merge(trials.drop_duplicates("cell_id")[["cell_id", "num_workers", "batch_size"]], on="cell_id")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "axes"),
    [
        (Truth(), {"mode": "load"}),
        (Truth(read_per_sample=0.0, compute_per_sample=1.0), {"mode": "load"}),
        (Truth(read_per_sample=0.5, compute_per_sample=0.5), {"mode": "load"}),
        (Truth(step=10.0), EMULATED),
        (Truth(read_per_sample=0.1, receive_wait=0.4, step=10.0), EMULATED),
    ],
)
def test_more_workers_are_predicted_from_none_and_one(truth: Truth, axes: dict[str, Any]) -> None:
    """Waiting, computing and mixed loaders, alone and before a step: what is known comes back within 2 %."""
    trials, steps = run_of(truth, (0, 1, 2, 4, 8), **axes)
    found = of_cells(held_out(trials, steps, CORES), trials)
    assert found["num_workers"].tolist() == [2, 4, 8]
    assert set(found["held_out"]) == {"num_workers"}
    for row in found.to_dict("records"):
        known = truth.pace(16, row["num_workers"])
        assert row["predicted_samples_per_s"] == pytest.approx(16e9 / known.step_ns, rel=0.02)
        assert row["predicted_wait_ms"] == pytest.approx(known.data_wait_ns / MS, rel=0.02, abs=0.1)
        assert row["lo"] < row["samples_per_s"] < row["hi"]
    assert found["within"].all()
    assert found["wait_within"].all()


def test_what_the_model_misses_is_said() -> None:
    """Predictions 8 % off are outside the limit; so are waits that are 2 ms off."""
    trials, steps = run_of(Truth(step=10.0), (0, 1, 2, 4, 8), **EMULATED)
    two, four, eight = (trials["num_workers"] == count for count in (2, 4, 8))
    trials.loc[two, "samples_per_s"] *= 0.92
    trials.loc[eight, "samples_per_s"] *= 1.08
    trials.loc[two, "host_fetch_ns"] += KEPT * 1.0 * MS
    trials.loc[four, "host_fetch_ns"] += KEPT * 2.0 * MS
    found = held_out(trials, steps, CORES)
    assert found["within"].tolist() == [False, True, False]
    assert found["error_pct"].tolist() == pytest.approx([100 / 0.92 - 100, 0, 100 / 1.08 - 100], abs=0.5)
    assert found["wait_within"].tolist() == [True, False, True]
    assert found["wait_error_ms"].tolist() == pytest.approx([-1, -2, 0], abs=0.1)


def test_a_batch_size_is_predicted_from_smaller_and_larger_ones() -> None:
    """Costs a batch and costs a sample are told apart; the smallest and the largest have nothing on one side."""
    truth = Truth(compute_per_batch=3.0, step=10.0)
    trials, steps = run_of(truth, (0, 1, 4), (8, 16, 32), **EMULATED)
    found = of_cells(held_out(trials, steps, CORES), trials)
    between = found[found["held_out"] == "batch_size"]
    assert between[["batch_size", "num_workers"]].to_numpy().tolist() == [[16, 1], [16, 4]]
    assert between["error_pct"].abs().max() < 2
    assert len(found[found["held_out"] == "num_workers"]) == 3


def test_the_bottleneck_is_predicted_with_its_distance() -> None:
    """Two workers are predicted to hold the step back, eight are not."""
    trials, steps = run_of(Truth(read_per_sample=2.0, step=10.0), (0, 1, 2, 8), **EMULATED)
    loads, _ = run_of(Truth(read_per_sample=2.0), (0, 1, 2, 8), mode="load")
    found = held_out(pd.concat([trials, loads.assign(trial_id=loads["trial_id"] + " load")]), steps, CORES)
    train = found[found["predicted_bottleneck"].notna()]
    assert train["predicted_bottleneck"].tolist() == ["loader-bound", "emulated-step-bound"]
    assert train["bottleneck"].tolist() == train["predicted_bottleneck"].tolist()
    assert (train["ceilings_apart"] > 1.5).all()
    assert len(found) == 4


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(0, 2), (0,), (2, 4)])
def test_without_one_worker_nothing_is_predicted(workers: tuple[int, ...]) -> None:
    """What a worker's way to the training process costs cannot be seen there: empty tables, no error."""
    trials, steps = run_of(Truth(), workers, mode="load")
    for frame in (trials, trials.iloc[:0], trials.assign(outcome="error")):
        found = held_out(frame, steps, CORES)
        assert len(found) == 0
        assert list(found.columns) == list(COLUMNS)


def test_single_steps_are_no_must_and_where_they_are_they_count() -> None:
    """Heavy tails slow in-order workers down: the same means with a tail in the stamps predict less."""
    trials, steps = run_of(Truth(), (0, 1, 4), mode="load")
    even = held_out(trials, steps.iloc[:0], CORES)["predicted_samples_per_s"][0]
    assert held_out(trials, steps, CORES)["predicted_samples_per_s"][0] == pytest.approx(even, rel=0.001)
    slow = np.where(np.arange(len(steps)) % 3 == 0, 2.8, 0.1)
    tail = steps.assign(worker_read_ns=steps["worker_read_ns"] * slow)
    assert held_out(trials, tail, CORES)["predicted_samples_per_s"][0] < 0.9 * even
