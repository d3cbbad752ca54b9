"""Estimators of throughput: ours is samples over wall clock; each of the others fails in its own way, and only so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.analysis import estimators
from feedrate.analysis.estimators import ESTIMATORS, Steps

MS = 1_000_000
BATCH = 8


def steps(window: list[int], warm: list[int] | None = None, startup: int = 0) -> Steps:
    """A trial whose steps take the given nanoseconds; its epochs are three steps each, 30 ms apart."""
    warm = warm or [MS] * 5
    first = np.cumsum([startup, *warm])
    borders = np.cumsum([int(first[-1]), *window])
    epochs = np.array([[100 * MS, 106 * MS], [136 * MS, 142 * MS]])
    return Steps(BATCH, int(borders[0]), int(borders[-1]), 0, first, borders, 3, epochs)


def test_an_even_loop_is_the_same_to_all() -> None:
    """Where every step takes as long, and nothing was prefetched, only the volume over one step is wrong."""
    found = estimators.estimates(steps([MS] * 40))
    rate = BATCH * 1e9 / MS
    assert found.pop("volume_over_mean_step") == pytest.approx(40 * rate)
    assert found.pop("reset_at_epoch_end") == pytest.approx(2 * 3 * BATCH / 0.012)
    assert found == pytest.approx(dict.fromkeys(found, rate))
    assert len(found) == len(ESTIMATORS) - 3


@settings(max_examples=60)
@given(st.lists(st.integers(1_000, 10**9), min_size=2, max_size=60))
def test_ours_is_samples_over_wall_clock_and_a_mean_of_rates_is_never_lower(window: list[int]) -> None:
    """Ours is exact for any steps, and a mean of rates is never lower."""
    found = estimators.estimates(steps(window))
    exact = len(window) * BATCH * 1e9 / sum(window)
    assert found["wall_clock"] == pytest.approx(exact)
    assert found["mean_of_rates"] >= exact * (1 - 1e-9)
    assert found["volume_over_mean_step"] == pytest.approx(len(window) * exact)


def test_bursts_blow_up_averages_of_rates() -> None:
    """Three of four batches lie ready: mean and median of rates report the ready ones."""
    found = estimators.estimates(steps([40 * MS, 10_000, 10_000, 10_000] * 10))
    assert found["wall_clock"] == pytest.approx(4 * BATCH / 0.04003)
    assert found["mean_of_rates"] > 500 * found["wall_clock"]
    assert found["median_of_rates"] == pytest.approx(BATCH * 1e9 / 10_000)


def test_what_was_prefetched_counts_where_the_warm_up_does_not_outlast_it() -> None:
    """Batches that were ready raise the rate of a clock from the first batch, or after short warm-up."""
    found = estimators.estimates(steps([4 * MS] * 10, warm=[10_000] * 6, startup=40 * MS))
    exact = BATCH * 1e9 / (4 * MS)
    assert found["wall_clock"] == pytest.approx(exact)
    assert found["from_first_batch"] == pytest.approx(10 * BATCH / 0.01606)
    assert found["fixed_warm_up"] == pytest.approx(10 * BATCH / 0.02803)
    assert found["from_iterator"] == pytest.approx(10 * BATCH / 0.05606)


def test_what_does_not_apply_is_left_out() -> None:
    """On a CPU nothing is synchronised; on a device the synchronised steps' own rate is taken."""
    trial = steps([MS] * 4)
    assert "synchronised_steps" not in estimators.estimates(trial)
    assert estimators.estimates(replace(trial, synchronised=123.0))["synchronised_steps"] == 123.0


def table(*rows: tuple[str, str, float]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["cell_id", "estimator", "samples_per_s"])
    return frame.assign(repeat=0, window_samples_per_s=100.0, epochs_samples_per_s=50.0)


def test_the_worst_error_keeps_its_sign() -> None:
    """The summary has median, range and worst of signed errors, and counts trials and cells."""
    found = estimators.summary(
        table(
            ("a", "wall_clock", 100.1),
            ("a", "wall_clock", 99.9),
            ("b", "wall_clock", 100.2),
            ("a", "from_iterator", 60.0),
            ("b", "from_iterator", 110.0),
        )
    )
    assert list(found["estimator"]) == ["wall_clock", "from_iterator"]
    ours, other = found.to_dict("records")
    assert ours["median_pct"] == pytest.approx(0.1)
    assert (ours["worst_pct"], ours["n"], ours["cells"]) == (pytest.approx(0.2), 3, 2)
    assert (other["worst_pct"], other["low_pct"], other["high_pct"]) == pytest.approx((-40, -40, 10))


def test_each_estimator_is_held_against_its_own_stretch() -> None:
    """A clock that is reset at epochs is compared with the external clock over the epochs, not over the window."""
    found = estimators.summary(table(("a", "reset_at_epoch_end", 75.0), ("a", "wall_clock", 75.0)))
    errors = dict(zip(found["estimator"], found["median_pct"], strict=True))
    assert errors == pytest.approx({"reset_at_epoch_end": 50.0, "wall_clock": -25.0})
