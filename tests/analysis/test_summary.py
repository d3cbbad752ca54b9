"""The end of a sweep: best settings, what holds them back, what they gain over the defaults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import STEADY, make_cell, make_trials, times

from feedrate.analysis.blocks import blocks_of
from feedrate.analysis.summary import best_cells, most_gained
from feedrate.schema.axes import cell_id


def test_the_best_is_a_set_cheapest_first() -> None:
    """Cells not told from the best are in; clearly slower ones are not; fewest workers come first."""
    found = best_cells(
        make_trials(
            [
                ({}, times(0.5)),
                ({"num_workers": 1}, times(0.99, 0.05)),
                ({"num_workers": 4}, times(1.0)),
                ({"num_workers": 8}, times(0.98)),
                ({"num_workers": 2}, times(0.995, 0.05)),
            ]
        )
    )
    assert list(found["num_workers"]) == [1, 2, 4]
    assert list(found["place"]) == [0, 1, 2]
    assert list(found["is_best"]) == [False, False, True]
    assert set(found["candidates"]) == {5}
    assert set(found["members"]) == {3}
    assert found.iloc[2][["ratio_to_best", "ratio_lo", "ratio_hi"]].tolist() == [1, 1, 1]
    assert (found["ratio_hi"] >= 1).all()


def test_of_equal_workers_the_smaller_memory_and_then_the_defaults_come_first() -> None:
    """A few kilobytes are no difference in memory."""
    frame = make_trials(
        [
            ({"num_workers": 2, "prefetch_factor": 4}, STEADY),
            ({"num_workers": 2}, STEADY),
            ({"num_workers": 2, "storage_format": "lmdb", "prefetch_factor": 8}, STEADY),
        ]
    )
    frame["pss_peak_bytes"] = np.repeat([800.0e6, 800.001e6, 500.0e6], len(STEADY))
    assert list(best_cells(frame)["prefetch_factor"]) == [8, 2, 4]


def test_what_was_not_compared_is_counted_apart() -> None:
    """A run may end within a repetition: of settings with one pair nothing is told."""
    rows = [({}, times(1.0)), ({"num_workers": 1}, times(0.9)), ({"num_workers": 2}, times(0.95)[:1])]
    found = best_cells(make_trials(rows))
    assert set(found["compared"]) == {2}
    assert set(found["candidates"]) == {3}


def test_a_gain_is_one_over_other_settings() -> None:
    """Where the defaults ran alone, nothing else was compared."""
    (alone,) = most_gained(make_trials([({}, times(1.0))])).to_dict("records")
    (both,) = most_gained(make_trials([({}, times(1.0)), ({"num_workers": 1}, times(2.0))])).to_dict("records")
    assert (alone["others"], both["others"]) == (0, 1)


@pytest.mark.slow
def test_questions_are_never_mixed() -> None:
    """Workload, mode, step, its length, sample size and run each make a question of their own, nulls included."""
    others: list[dict[str, Any]] = [
        {},
        {"workload": "div2k_standin"},
        {"mode": "load"},
        {"mode": "compute"},
        {"step": "emulated"},
        {"step": "emulated", "step_ms": 50.0},
        {"patch_size": 16},
        {"read_us": 100},
    ]
    frame = make_trials([(axes, times(2.0**place)) for place, axes in enumerate(others)])
    two = pd.concat([frame, frame.assign(run_id="second")])
    assert len(best_cells(frame)) == len(others)
    assert len(best_cells(two)) == 2 * len(others)
    assert best_cells(two)["is_best"].all()


def test_one_block_tells_nothing_apart() -> None:
    """With one pair there is no interval: the set is the best alone, not everything."""
    found = best_cells(make_trials([({}, [100.0]), ({"num_workers": 2}, [101.0])]))
    assert list(found["num_workers"]) == [2]
    assert found["pairs"].tolist() == [1]
    assert np.isnan(found["ratio_hi"]).all()


def test_cells_that_serve_others_answer_no_question() -> None:
    """No ceiling, control or replica is best unless its cell was asked for, too."""
    frame = make_trials(
        [
            ({"num_workers": 2}, STEADY),
            ({"num_workers": 4}, times(9.0)),
            ({"mode": "load", "num_workers": 2}, times(3.0)),
            ({"mode": "load"}, times(2.0)),
            ({"replica": 1, "num_workers": 2}, times(1.1)),
        ],
        role="cell",
    )
    added = (frame["mode"] == "load") & (frame["num_workers"] == 2)
    frame.loc[frame["num_workers"] == 4, "role"] = "control"
    found = best_cells(frame.assign(role=frame["role"].mask(added, "ceiling")))
    assert found[["mode", "num_workers"]].to_numpy().tolist() == [["train", 2], ["load", 0]]
    assert found["candidates"].tolist() == [1, 1]
    both = frame.assign(role=frame["role"].mask(added & (frame["block"] > 0), "ceiling"))
    assert best_cells(both)["num_workers"].tolist() == [2, 2]
    assert len(most_gained(frame)) == 1


def noisy(factor: float, place: int, blocks: int = 8) -> list[float]:
    """Rates of a setting with normal noise of its own, 3 % a trial."""
    return list(100 * factor * np.exp(0.03 * np.random.default_rng(place).standard_normal(blocks)))


def test_defaults_are_compared_with_settings_of_the_same_format_and_batch() -> None:
    """A ratio with its interval; what no default has in common its format and batch with is left out."""
    cells: list[tuple[dict[str, Any], list[float]]] = [
        ({}, STEADY),
        ({"num_workers": 2}, times(3.0, 0.01)),
        ({"num_workers": 4}, times(2.0)),
        ({"storage_format": "lmdb"}, times(9.0)),
        ({"storage_format": "lmdb", "num_workers": 2}, times(10.0)),
        ({"batch_size": 8, "num_workers": 2}, times(9.0)),
        ({"mode": "compute"}, times(9.0)),
    ]
    (found,) = most_gained(make_trials(cells)).to_dict("records")
    assert (found["storage_format"], found["batch_size"], found["num_workers"]) == ("png", 32, 2)
    assert found["default_cell"] == cell_id(make_cell({}))
    assert found["best_cell"] == cell_id(make_cell({"num_workers": 2}))
    assert (found["ratio"], found["n"], found["verdict"]) == (pytest.approx(3, rel=0.01), 4, "faster")
    assert found["lo"] < 3 < found["hi"]
    assert found["candidates"] == 5
    (default,) = most_gained(make_trials(cells[:1])).to_dict("records")
    assert (default["ratio"], default["verdict"]) == (1, "no difference")


@pytest.mark.parametrize(("four", "two", "named"), [(3.0, 2.9, 2), (3.0, 2.8, 4), (1.04, 1.03, 4), (1.04, 0.99, 4)])
def test_fewer_workers_are_named_where_they_reach_about_as_much(four: float, two: float, named: int) -> None:
    """95 % of the highest speed and gain is enough for fewer workers, the fewest knobs first; the gain is theirs."""
    cells = [({}, STEADY), ({"num_workers": 4}, times(four)), ({"num_workers": 2}, times(two))]
    cells += [({"num_workers": 2, "prefetch_factor": 4}, times(two))]
    (found,) = most_gained(make_trials(cells)).to_dict("records")
    assert (found["num_workers"], found["prefetch_factor"], found["verdict"]) == (named, 2, "faster")
    assert found["ratio"] == pytest.approx(two if named == 2 else four)


def test_the_gain_ranges_over_formats_and_batches() -> None:
    """Of equal settings in many formats and batches one seems to gain; chosen and measured apart, none does."""
    places = [(name, size, count) for name in ("png", "lmdb") for size in (8, 16, 32, 64) for count in (0, 1, 2, 4)]
    frame = make_trials(
        [
            ({"storage_format": name, "batch_size": size, "num_workers": count}, noisy(1.0, 576 + place))
            for place, (name, size, count) in enumerate(places)
        ]
    )
    (found,) = most_gained(frame).to_dict("records")
    (naive,) = blocks_of(frame).ratios(["run"], [found["default_cell"]], [found["best_cell"]]).to_dict("records")
    assert naive["ratio"] > 1.03
    assert naive["lo"] > 1.01
    assert found["ratio"] < naive["ratio"] - 0.01
    assert found["lo"] < 1
    assert found["verdict"] != "faster"
    assert found["candidates"] == len(places)


def test_what_the_step_gains_is_no_merit_of_the_loader() -> None:
    """A faster step is best of its task, and neither side of the comparison of loaders."""
    workers = {"num_workers": 2}
    frame = make_trials(
        [
            ({}, STEADY),
            (workers, times(1.5)),
            (workers | {"amp": "bf16"}, times(4.0)),
            ({"memory_format": "channels_last"}, times(2.0)),
        ]
    )
    (against,) = most_gained(frame).to_dict("records")
    assert (against["default_cell"], against["best_cell"]) == (cell_id(make_cell({})), cell_id(make_cell(workers)))
    assert against["ratio"] == pytest.approx(1.5)
    assert best_cells(frame)["amp"].tolist() == ["bf16"]
