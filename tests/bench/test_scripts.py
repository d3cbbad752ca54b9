"""What feedrate run says of scripts is held against their own clocks, and what it costs them is measured."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from feedrate.bench import scripts
from feedrate.schema.window import warm_up_steps
from feedrate.store.bench_record import WatchedScript, predictions


def watched(**changes: Any) -> WatchedScript:
    """A script of which feedrate says what its own clock does."""
    alike: dict[str, Any] = {"costs": "some", "num_workers": 2, "start_method": "fork", "steps": 100, "hot_first": True}
    alike |= {"steps_per_s": 100.0, "script_steps_per_s": 100.0, "wait_share": 0.5, "script_wait_share": 0.5}
    return WatchedScript(
        **{**alike, "hot_share": 0.7, "script_hot_share": 0.7, "cause": "waiting", "predicted": {}, **changes}
    )


def test_the_planted_scripts_cover_what_a_loader_can_be() -> None:
    """Constant and heavy-tailed samples, map-style and iterable, with every number of workers and either start."""
    planned = scripts.planned()
    ran = {(costs.options.get("shape"), costs.options.get("kind"), *way) for costs, *way in planned}
    ways = [(0, "fork"), *product((1, 2, 8), ("fork", "spawn"))]
    assert {(*loader, *way) for loader in product((None, "heavy"), (None, "iterable")) for way in ways} <= ran
    assert len({costs.options["computes"] for costs, *_ in planned}) == 3
    assert len({costs.label for costs in scripts.COSTS}) == len(scripts.COSTS)


@pytest.mark.parametrize(
    ("off", "missed", "measured"),
    [
        ({"steps_per_s": 100.9}, [], "10 of 10 (error: median +0.00, worst +0.90 %)"),
        ({"steps_per_s": 98.9}, [0], "9 of 10 (error: median +0.00, worst -1.10 %)"),
        ({"wait_share": 0.519}, [], "worst +1.90 points)"),
        ({"wait_share": 0.479}, [1], "worst -2.10 points)"),
        ({"hot_share": 0.2}, [2], "worst -50.00 points)"),
        ({"hot_first": False}, [4], "9 of 10"),
        ({"num_workers": 0, "start_method": None, "script_steps_per_s": 50.0, "steps_per_s": 50.0}, [3], "+100.00 %"),
    ],
)
def test_scripts_that_are_off_are_counted(off: dict[str, Any], missed: list[int], measured: str) -> None:
    """One of ten that is off by more misses its target, however many others are exact, and no other target."""
    figures = list(scripts.judge_accuracy([*[watched(predicted={0: 100.0, 2: 100.0})] * 9, watched(**off)]))
    assert figures.pop().measured.startswith("0 of 0")  # nobody is recommended another number of workers
    assert [place for place, figure in enumerate(figures) if not figure.met] == missed
    assert any(measured in figure.measured for figure in figures)


def test_a_prediction_is_held_against_the_script_that_ran_so() -> None:
    """Each number of workers that was predicted and also ran is a pair; spawned scripts and other costs are none."""
    ran = [
        watched(predicted={0: 40.0, 3: 1.0, 4: 150.0}),
        watched(num_workers=0, start_method=None, script_steps_per_s=50.0, predicted={2: 105.0}),
        watched(costs="other", num_workers=4, predicted={2: 1.0}),
        watched(num_workers=4, start_method="spawn", script_steps_per_s=150.0, predicted={0: 1.0}),
    ]
    pairs = [(pace.costs, pace.seen, pace.num_workers, round(pace.error_pct)) for pace in predictions(ran)]
    assert pairs == [("some", 2, 0, -20), ("some", 0, 2, 5)]
    again = [watched(num_workers=0, start_method=None, script_steps_per_s=rate) for rate in (40.0, 32.0)]
    assert predictions([*ran, *again])[0].measured == 40, "of several runs the median"


def test_what_feedrate_costs_needs_its_whole_interval_below_the_limit() -> None:
    """Each epoch with feedrate is divided by one without; a tenth of the steps and the first pairs are left out.

    A machine that slows down for an epoch slows the forward pass down, too.
    """

    def turn(wall: float, forward: float = 1.0) -> scripts.Turn:
        without = {"walls": [9.0] + [2.0] * 9, "forward": [9.0] + [1.0] * 9}
        return {"without": without, "with": {"walls": [1.0] + [2 * wall] * 9, "forward": [1.0] + [forward] * 9}}

    turns = [turn(ratio) for ratio in (5, 5, 1.004, 1.006, 1.005, 1.004)]
    figure, by_forward = scripts.judge_cost("some", 1.01, turns)
    assert figure.met
    assert by_forward.met
    assert "n = 4 pairs of 10 steps" in figure.measured
    assert [figure.met for figure in scripts.judge_cost("some", 1.01, [*turns, turn(1.03)])] == [False, False]
    assert [figure.met for figure in scripts.judge_cost("some", 1.01, [*turns, turn(1.53, 1.52)])] == [False, True]


@pytest.mark.slow
def test_feedrate_is_away_in_every_other_epoch(tmp_path: Path) -> None:
    """A script has both ways of every pair, and feedrate counts the steps of one of them."""
    costs = scripts.Costs("some", {"turns": 4, "steps": 30, "step-ms": 1, "sample-ms": 0})
    turns = scripts.Planted(tmp_path).turns(costs, no_lines=True)
    assert [sorted(turn) for turn in turns] == [["with", "without"]] * 2
    assert {len(seconds) for turn in turns for way in turn.values() for seconds in way.values()} == {30}
    assert all(min(way["walls"]) > min(way["forward"]) > 0 for turn in turns for way in turn.values())
    (report,) = tmp_path.glob("*/*.report.json")
    assert json.loads(report.read_text())["loader"]["steps"] == 2 * 30


@pytest.mark.slow
def test_a_script_is_watched_beside_its_own_clock(tmp_path: Path) -> None:
    """Both speak of the same steps, whose sum they agree on; the planted line is that which feedrate names."""
    script = scripts.watch(scripts.Planted(tmp_path), scripts.COSTS[0], 1, "fork", steps=200)
    assert script.steps == 200 - warm_up_steps(1, 2)
    assert abs(script.pace_error_pct) < 1
    assert 0 < script.wait_share < 1
    assert script.hot_first
    # Where other programs use the cores the model may be off, and then nothing is predicted.
    assert not script.predicted or {0, 2, 4, 8} <= set(script.predicted)
