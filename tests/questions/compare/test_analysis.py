"""Two runs beside each other: ratios by kind, stages side by side, best settings, verdicts that differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from feedrate.analysis.ceilings import cells_with_ceilings
from feedrate.analysis.machines import compare
from feedrate.questions.compare.analysis import best_of_both, claims, held_back, kinds, repeated, stages

Trials = Callable[..., pd.DataFrame]
LOAD = {"mode": "load", "storage_format": "png"}


def run(trials_of: Trials, rates: Any, run_id: str, **columns: Any) -> pd.DataFrame:
    """One run of the cells given, data and all."""
    return trials_of(rates, run_id=run_id, **{"data_hash": "abc", "cached_before_pct": 100.0, **columns})


def around(rate: float, blocks: int = 4) -> list[float]:
    """Rates by block, of which this is the geometric mean."""
    return [rate * 1.002**step for step in np.linspace(-1, 1, blocks)]


def stamped(trials: pd.DataFrame, **microseconds: float) -> pd.DataFrame:
    """Trials in which the workers' stages take so long a sample."""
    for stage, each in microseconds.items():
        trials[f"worker_{stage}_ns"] = 1000 * each * trials["samples"].astype("float64")
    return trials


def test_kinds_are_summed_up_apart(trials_of: Trials) -> None:
    """Real training, emulated steps and stages alone have a geometric mean each, and a tally of verdicts."""
    axes: list[dict[str, Any]] = [{"batch_size": 8}, {"batch_size": 16}, {"step": "emulated"}, {"step": "spin"}, LOAD]
    a = run(trials_of, [(one, around(100.0)) for one in axes], "a")
    rates = (200.0, 50.0, 100.0, 100.0, 300.0)
    b = run(trials_of, [(one, around(rate)) for one, rate in zip(axes, rates, strict=True)], "b")
    found = kinds(compare(a, b)).set_index("kind")
    assert found.index.tolist() == ["train", "emulated", "load"]
    assert found["ratio"].tolist() == pytest.approx([1.0, 1.0, 3.0])
    assert found.loc["train", ["cells", "faster", "slower", "same", "open"]].tolist() == [2, 1, 1, 0, 0]
    assert found.loc["emulated", ["faster", "same"]].tolist() == [0, 2]
    half = stats.t.ppf(0.975, 1) * np.std([math.log(2), -math.log(2)], ddof=1) / math.sqrt(2)
    assert found.loc["train", "hi"] == pytest.approx(math.exp(half))


def test_stages_show_why(trials_of: Trials) -> None:
    """Decoding is a third as fast on B and nothing else differs: the decode stage says so, reading does not."""
    axes: list[dict[str, Any]] = [{**LOAD, "num_workers": count} for count in (0, 1, 4)]
    a, b = (run(trials_of, [(one, around(100.0)) for one in axes], name) for name in "ab")
    stamped(a, read=10, decode=100, transform=5, collate=2)
    stamped(b, read=10, decode=300, transform=5, collate=2)
    b.loc[b["num_workers"] == 4, "worker_decode_ns"] *= 50  # workers that wait for cores tell nothing of decoding
    found = stages(a, b, compare(a, b)).set_index("stage")
    assert found.index.tolist() == ["load", "cached", "decode", "transform", "collate"]
    assert found["ratio"].to_dict() == pytest.approx(
        {"load": 1, "cached": 1, "decode": 1 / 3, "transform": 1, "collate": 1}
    )
    assert found.loc["decode", ["a", "b"]].tolist() == pytest.approx([1e4, 1e4 / 3])
    assert found["cells"].to_dict() == {"load": 3, "cached": 2, "decode": 2, "transform": 2, "collate": 2}


def test_the_disk_is_told_from_the_page_cache(trials_of: Trials) -> None:
    """Cold cells are the disk's; a stage of one cell has the interval of its blocks."""
    axes: list[dict[str, Any]] = [{**LOAD, "page_cache": state} for state in ("warm", "cold")]
    a, b = (run(trials_of, [(one, around(100.0)) for one in axes], name) for name in "ab")
    for each in (a, b):
        each.loc[each["page_cache"].eq("cold"), "cached_before_pct"] = 0.0
    stamped(a, read=10)
    stamped(b, read=20)
    b.loc[b["page_cache"].eq("cold"), "worker_read_ns"] *= 4
    b["worker_read_ns"] *= 1 + 0.01 * b["block"]
    found = stages(a, b, compare(a, b)).set_index("stage")
    assert found.loc["cached", "ratio"] == pytest.approx(0.5, rel=0.02)
    assert found.loc["disk", "ratio"] == pytest.approx(0.125, rel=0.02)
    assert found.loc["disk", "lo"] < found.loc["disk", "ratio"] < found.loc["disk", "hi"]
    assert found.loc["disk", ["n_a", "n_b"]].tolist() == [4, 4]
    assert stages(a, b, compare(a, b).iloc[[0, 0]])["n_a"].isna().all()  # of several cells no blocks are told
    assert "decode" not in found.index  # nobody stamped it


def test_what_holds_a_training_cell_back_on_either(trials_of: Trials) -> None:
    """A waits for its loader, B for its model."""
    load, compute = {"mode": "load"}, {"mode": "compute"}
    a = run(trials_of, [({}, around(95.0)), (load, around(100.0)), (compute, around(900.0))], "a")
    b = run(trials_of, [({}, around(800.0)), (load, around(5000.0)), (compute, around(850.0))], "b")
    held = held_back(cells_with_ceilings(a), cells_with_ceilings(b), compare(a, b))
    assert held.to_numpy().tolist() == [["loader-bound", "compute-bound", 1]]


@pytest.mark.slow
def test_the_best_of_both(trials_of: Trials) -> None:
    """Each machine's own best, what it is worth on the other, and best against best by Welch."""
    axes: list[dict[str, Any]] = [{"num_workers": count} for count in (0, 2, 4)]
    a = run(trials_of, [(one, around(rate)) for one, rate in zip(axes, (100.0, 200.0, 150.0), strict=True)], "a")
    b = run(trials_of, [(one, around(rate)) for one, rate in zip(axes, (100.0, 300.0, 600.0), strict=True)], "b")
    sides = [(trials, cells_with_ceilings(trials)) for trials in (a, b)]
    cells = compare(a, b)
    row = best_of_both(*sides, cells).iloc[0]
    assert (row["samples_per_s_a"], row["samples_per_s_b"]) == (pytest.approx(200), pytest.approx(600))
    assert (row["ratio"], row["a_on_b"], row["b_on_a"]) == (pytest.approx(3), pytest.approx(0.5), pytest.approx(0.75))
    assert row["n_a"] == 4
    assert row["lo"] < 3 < row["hi"]
    assert row["lo_a"] < 200 < row["hi_a"]
    assert row["a_on_b_lo"] <= row["a_on_b"] <= row["a_on_b_hi"]
    assert row["a_on_b_n"] == 4
    assert len(best_of_both(*sides, cells, unranked=["loader"])) == 0
    alone = run(trials_of, [({"num_workers": 4}, around(600.0))], "b")
    only = best_of_both(sides[0], (alone, cells_with_ceilings(alone)), compare(a, alone)).iloc[0]
    assert math.isnan(only["a_on_b"])
    assert math.isnan(only["a_on_b_n"])
    assert only["b_on_a"] == pytest.approx(0.75)


def test_claims_that_differ_come_first() -> None:
    """Both tested: decided differences, then undecided ones, then agreement; what one could not test is left out."""
    columns = {"suite": "loader", "ratio": 1.5, "lo": 1.4, "hi": 1.6, "n": 8}
    words = ["confirmed", "confirmed", "inconclusive", "confirmed"]
    a = pd.DataFrame([{"claim": name, "verdict": word, **columns} for name, word in zip("wxyz", words, strict=True)])
    others = ["confirmed", "not testable here", "refuted", "refuted"]
    b = pd.DataFrame([{"claim": name, "verdict": word, **columns} for name, word in zip("wxyz", others, strict=True)])
    found = claims(a, b)
    assert found["claim"].tolist() == ["z", "y", "w"]
    assert found["agree"].tolist() == [False, False, True]
    assert found["decided"].tolist() == [True, False, True]
    assert found.loc[0, ["verdict_a", "verdict_b"]].tolist() == ["confirmed", "refuted"]
    assert len(claims(a, pd.DataFrame(columns=["claim", "verdict"]))) == 0


def test_how_well_runs_repeat(trials_of: Trials) -> None:
    """Half of the cells lie within the median difference; intervals that hold one are counted."""
    axes = [{"batch_size": size} for size in (1, 2, 4)]
    a = run(trials_of, [(one, around(100.0)) for one in axes], "a")
    b = run(trials_of, [(one, around(rate)) for one, rate in zip(axes, (100.0, 105.0, 200.0), strict=True)], "b")
    found = repeated(compare(a, b))
    assert found.half_within_pct == pytest.approx(5.0)
    assert (found.hold, found.cells) == (1, 3)
