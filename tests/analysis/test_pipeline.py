"""The model of a DataLoader: PyTorch's order of events, and cores that are shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.analysis.pipeline import Floats, Pipeline, simulate

MS = 1e6
PLENTY = 1000.0


def pipeline(wait_ms: Any = 0.0, compute_ms: Any = 0.0, **others: float) -> Pipeline:
    """Given in milliseconds; plenty of cores unless said otherwise."""
    wait, compute = np.broadcast_arrays(np.atleast_1d(wait_ms), np.atleast_1d(compute_ms))
    parts = {"receive_wait": 0.0, "receive_compute": 0.0, "step": 0.0, **others}
    return Pipeline(
        wait_ns=wait.astype(np.float64) * MS,
        compute_ns=compute.astype(np.float64) * MS,
        receive_wait_ns=parts["receive_wait"] * MS,
        receive_compute_ns=parts["receive_compute"] * MS,
        step_ns=parts["step"] * MS,
        step_cores=others.get("step_cores", 0.0),
        cores=others.get("cores", PLENTY),
    )


def recurrences(times: Floats, step: float, receive: float, num_workers: int, prefetch_factor: int) -> float:
    """Pace in ns by the equations of the module's docstring, over as many steps as it simulates."""
    steps = -(-256 // num_workers) * num_workers
    warm, ahead = num_workers * (prefetch_factor + 1), num_workers * prefetch_factor
    done: list[float] = []
    take: list[float] = []
    for i in range(warm + steps + 1):
        start = max(done[i - num_workers] if i >= num_workers else 0.0, take[i - ahead] if i >= ahead else 0.0)
        done.append(start + times[i % len(times)])
        take.append(max(done[i], take[-1] + step if take else 0.0) + receive)
    return (take[-1] - take[warm]) / steps


@settings(max_examples=60)
@given(
    prepare=st.floats(0.1, 100),
    waits=st.floats(0, 1),
    step=st.floats(0, 50),
    receive=st.floats(0, 5),
    workers=st.integers(1, 9),
    prefetch=st.integers(1, 4),
)
def test_with_free_cores_the_recurrences_hold(
    prepare: float, waits: float, step: float, receive: float, workers: int, prefetch: int
) -> None:
    """Whatever a batch takes and however much of it is waiting: the pace of the equations, and their waits."""
    model = pipeline(waits * prepare, (1 - waits) * prepare, step=step, receive_compute=receive)
    pace = simulate(model, workers, prefetch)
    expected = recurrences(np.array([prepare * MS]), step * MS, receive * MS, workers, prefetch)
    assert pace.step_ns == pytest.approx(expected, rel=1e-6, abs=1)
    assert pace.data_wait_ns + step * MS == pytest.approx(pace.step_ns, rel=1e-6, abs=1)


@settings(max_examples=40)
@given(
    compute=st.floats(1, 50),
    wait=st.floats(0, 50),
    receive=st.floats(0, 3),
    cores=st.sampled_from([1.0, 1.5, 2.0, 4.0]),
    workers=st.integers(1, 12),
)
def test_no_pace_beats_the_cores_or_the_workers(
    compute: float, wait: float, receive: float, cores: float, workers: int
) -> None:
    """A batch takes at least its CPU time ÷ cores and its worker's time ÷ workers."""
    pace = simulate(pipeline(wait, compute, receive_compute=receive, cores=cores), workers)
    least = max((compute + receive) / cores, (wait + compute) / workers, receive)
    assert pace.step_ns / MS >= 0.99 * least


def test_workers_that_compute_by_chance_at_once_lose_more_than_the_bound() -> None:
    """Four workers, half waiting and half computing, could use two cores wholly if never in each other's way."""
    waits, computes = np.random.default_rng(1).exponential(10, (2, 500))
    free, shared = (simulate(pipeline(waits, computes, cores=cores), 4, 16).step_ns for cores in (PLENTY, 2))
    assert free / MS == pytest.approx(20 / 4, rel=0.06)
    assert shared > 1.1 * free


def test_one_slow_batch_holds_the_others_up_and_prefetching_helps() -> None:
    """Delivery is in order: a heavy tail costs more than its mean, less with more batches ahead, nothing alone."""
    tail = np.where(np.arange(200) % 20 == 0, 105.0, 5.0)
    alone = simulate(pipeline(tail), 1).step_ns / MS
    assert alone == pytest.approx(10, rel=0.02)
    few, many = (simulate(pipeline(tail), 4, prefetch).step_ns / MS for prefetch in (1, 16))
    even = simulate(pipeline(tail.mean()), 4).step_ns / MS
    assert even == pytest.approx(2.5, rel=0.01)
    assert few > 1.3 * many > 1.3 * even


def test_the_mean_of_the_measured_batches_is_kept() -> None:
    """Of thousands of batches only some hundreds are drawn: their mean is that of all, tail included."""
    times = np.random.default_rng(3).lognormal(1, 2, 5000)
    assert simulate(pipeline(0, times), 1, seed=4).step_ns / MS == pytest.approx(times.mean(), rel=0.05)
    assert simulate(pipeline(times), 0, seed=4).step_ns / MS == pytest.approx(times.mean(), rel=0.01)
