"""What feedrate run says of scripts is held against their own clocks, and what it costs them is measured."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from feedrate.bench import scripts
from feedrate.schema.errors import TrialError
from feedrate.schema.window import warm_up_steps
from feedrate.store.bench_record import WatchedScript, predictions


def watched(**changes: Any) -> WatchedScript:
    """A script of which feedrate says what its own clock does."""
    alike: dict[str, Any] = {
        "costs": "some",
        "num_workers": 2,
        "start_method": "fork",
        "steps": 100,
        "steps_per_s": 100.0,
        "script_steps_per_s": 100.0,
        "wait_share": 0.5,
        "script_wait_share": 0.5,
        "hot_first": True,
        "hot_share": 0.7,
        "script_hot_share": 0.7,
        "predicted": {},
    }
    return WatchedScript(**alike | changes)


def test_the_planted_scripts_cover_what_a_loader_can_be() -> None:
    """Constant and heavy-tailed samples, map-style and iterable, with every number of workers and either start."""
    planned = scripts.planned()
    seen = {
        (costs.options.get("shape"), costs.options.get("kind"), workers, method)
        for costs, workers, method in planned
        if workers or method == "fork"
    }
    ways = [(0, "fork"), *product((1, 2, 8), ("fork", "spawn"))]
    assert {(*loader, *way) for loader in product((None, "heavy"), (None, "iterable")) for way in ways} <= seen
    assert len({costs.options["computes"] for costs, _, _ in planned}) == 3
    assert len({costs.label for costs in scripts.COSTS}) == len(scripts.COSTS)


@pytest.mark.parametrize(
    ("off", "met", "said"),
    [
        ({"steps_per_s": 100.9}, [True, True], "+0.90 %"),
        ({"steps_per_s": 98.9}, [False, True], "-1.10 %"),
        ({"wait_share": 0.519}, [True, True], "+1.90 points"),
        ({"wait_share": 0.479}, [True, False], "-2.10 points"),
    ],
)
def test_the_worst_script_decides_on_pace_and_wait(off: dict[str, float], met: list[bool], said: str) -> None:
    """One script that is off by more misses the target, however many others are exact; how many are within is said."""
    found = list(scripts.judge_paces([*[watched()] * 9, watched(**off)]))
    assert [figure.met for figure in found] == met
    assert any(said in figure.measured for figure in found)
    assert [f"{10 if kept else 9} of 10 are within" in figure.measured for figure, kept in zip(found, met, strict=True)]


def test_hot_lines_are_counted_and_their_shares_compared() -> None:
    """One of twenty may not be named first, or may have another share than by its own clock; two are too many."""
    fine, lost, off = watched(hot_share=0.74), watched(hot_first=False), watched(hot_share=0.2)
    first, share = scripts.judge_lines([*[fine] * 18, lost, off])
    assert (first.met, share.met) == (True, True)
    assert first.measured == "19 of 20"
    assert share.measured.startswith("19 of 20")
    assert "worst -50.0" in share.measured
    assert [figure.met for figure in scripts.judge_lines([*[fine] * 18, lost, lost])] == [False, True]
    assert [figure.met for figure in scripts.judge_lines([*[fine] * 18, off, off])] == [True, False]


def test_a_prediction_is_held_against_the_script_that_ran_so() -> None:
    """Each number of workers that was predicted and also ran is a pair; spawned scripts and other costs are none."""
    ran = [
        watched(predicted={0: 40.0, 3: 1.0, 4: 150.0}),
        watched(num_workers=0, start_method=None, script_steps_per_s=50.0, predicted={2: 105.0}),
        watched(costs="other", num_workers=4, predicted={2: 1.0}),
        watched(num_workers=4, start_method="spawn", script_steps_per_s=150.0, predicted={0: 1.0}),
    ]
    assert [(each.costs, each.seen, each.num_workers) for each in predictions(ran)] == [("some", 2, 0), ("some", 0, 2)]
    assert [each.error_pct for each in predictions(ran)] == pytest.approx([-20, 5])
    found = scripts.judge_predictions(ran)
    assert (found.met, found.measured[:4]) == (False, "50\u00a0%")
    assert "worst -20 %, n = 2" in found.measured


def test_what_feedrate_costs_needs_its_whole_interval_below_the_limit() -> None:
    """Each epoch with feedrate is divided by one without; a tenth of the steps and the first pairs are left out."""
    pairs = [
        {"without": [9.0] + [1.0] * 9, "with": [1.0] + [ratio] * 9} for ratio in (5, 5, 1.004, 1.006, 1.005, 1.004)
    ]
    found = scripts.judge_cost("some", 1.01, pairs)
    assert found.met
    assert "n = 4 pairs of 10 steps" in found.measured
    assert not scripts.judge_cost("some", 1.01, [*pairs, {"without": [1.0] * 10, "with": [1.03] * 10}]).met


@pytest.mark.slow
def test_feedrate_is_away_in_every_other_epoch(tmp_path: Path) -> None:
    """A script has both ways of every pair, and feedrate counts the steps of one of them."""
    costs = scripts.Costs("some", {"turns": 8, "steps": 30, "step-ms": 1, "sample-ms": 0})
    turns = scripts.Planted(tmp_path).turns(costs, no_lines=True)
    assert [sorted(turn) for turn in turns] == [["with", "without"]] * 4
    assert {len(walls) for turn in turns for walls in turn.values()} == {30}
    (report,) = tmp_path.glob("*/*.report.json")
    assert json.loads(report.read_text())["loader"]["steps"] == 4 * 30


def test_a_script_that_fails_gives_no_figure(tmp_path: Path) -> None:
    """What an earlier script wrote is not taken for its own."""
    planted = scripts.Planted(tmp_path)
    (tmp_path / "planted.json").write_text('{"walls": [1.0]}', encoding="utf-8")
    with pytest.raises(TrialError, match="ended with status 2"):
        scripts.watch(planted, scripts.Costs("some", {"kind": "neither"}), 0, "fork")


@pytest.mark.slow
def test_a_script_is_watched_beside_its_own_clock(tmp_path: Path) -> None:
    """Both speak of the same steps, whose sum they agree on; the planted line is that which feedrate names."""
    found = scripts.watch(scripts.Planted(tmp_path), scripts.COSTS[0], 1, "fork", steps=300)
    assert found.steps == 300 - warm_up_steps(1, 2)
    assert abs(found.pace_error_pct) < 1
    assert 0 < found.wait_share < 1
    assert found.hot_first
    assert {0, 2, 4, 8} <= set(found.predicted)
