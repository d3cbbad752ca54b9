"""What feedrate tune promises: judged on simulated searches, on planted workloads, and beside loadtune."""

from __future__ import annotations

import math
from copy import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from feedrate.attach.space import Setting
from feedrate.bench import planted_tuning, simulated_searches, statistics, tuning
from feedrate.bench.simulated_searches import WITHIN, WORKLOADS, Searched
from feedrate.schema.errors import TrialError
from feedrate.store import runs
from feedrate.store.bench_record import Advice, TunedWorkload

PACES = {f"num_workers={workers}": (pace,) * 8 for workers, pace in ((0, 50.0), (2, 100.0), (4, 102.0))}


def tuned(ours: int = 2, theirs: int | None = 0, took_s: float = 30, **changes: Any) -> TunedWorkload:
    """A workload: feedrate's choice, loadtune's choice in 40 s."""
    alike: dict[str, Any] = {
        "costs": "some",
        "present": "num_workers=0",
        "settings": 50,
        "trials": 40,
        "bound_pct": 2.5,
        "feedrate": Advice(setting=f"num_workers={ours}", took_s=took_s),
        "loadtune": None if theirs is None else Advice(setting=f"num_workers={theirs}", took_s=40),
        "stopped": None if theirs is None else Advice(setting="num_workers=2", took_s=39),
        "blocks": 8,
        "steps_per_s": PACES,
    }
    return TunedWorkload(**alike | changes)


def test_every_setting_that_is_named_was_measured_in_every_block() -> None:
    """A record without is refused, with the setting or the number of blocks."""
    assert tuned().paces == pytest.approx({"num_workers=0": 50, "num_workers=2": 100, "num_workers=4": 102})
    with pytest.raises(ValidationError, match="steps_per_s lacks num_workers=3"):
        tuned(3)
    with pytest.raises(ValidationError, match="expected 9 paces a setting"):
        tuned(blocks=9)


def test_good_settings_and_trials_are_counted() -> None:
    """One bad setting of twenty may be recommended, two may not; of trials the median counts."""
    good, few = tuning.judge([*[tuned()] * 19, tuned(0)])
    assert (good.met, few.met) == (True, True)
    assert good.measured == "19 of 20 (regret: median 2.0 %, worst 104.0 %)"
    assert few.measured.startswith("10\u00a0%")
    bad, many = tuning.judge([*[tuned(trials=60)] * 18, *[tuned(0)] * 2])
    assert (bad.met, many.met) == (False, False)


def test_feedrate_is_held_beside_loadtune() -> None:
    """Regrets within 1 % are equal; to be sooner with a worse setting is no lead in both."""
    ahead, equal, behind = tuned(), tuned(4, 4, 50), tuned(2, 4)
    found = list(tuning.compare([ahead, equal, behind]))
    assert [figure.measured.split(" (")[0] for figure in found] == ["2 of 3", "2 of 3", "1 of 3", "1 of 3"]
    assert [figure.met for figure in found] == [False, True, False, False]
    assert "1 equal" in found[0].measured
    assert all(figure.met for figure in tuning.compare([ahead]))


def test_without_loadtune_nothing_is_compared() -> None:
    """The figures say so, and are neither met nor missed."""
    found = list(tuning.compare([tuned(theirs=None)]))
    assert [figure.met for figure in found] == [None] * 4
    assert all("could not be installed" in figure.measured for figure in found)


def test_searches_are_judged_by_how_often_they_keep_their_word() -> None:
    """A bound that the truth exceeds is broken, whatever the regret; a large regret within its bound is a regret."""
    fine, broken, far = (Searched(49, 20, *ends) for ends in ((0.01, 0.02), (0.02, 0.01), (WITHIN + 0.01, 0.1)))
    for few, many, at in ((19, 1, None), (18, 2, 0)):
        found = list(simulated_searches.judge([*[fine] * few, *[broken] * many], "made up"))
        assert [figure.met for figure in found] == [place != at for place in range(3)]
    found = list(simulated_searches.judge([*[fine] * 18, *[far] * 2], "made up"))
    assert [figure.met for figure in found] == [True, False, True]
    assert "90.0 %" in found[1].measured


def test_simulated_trials_vary_as_recorded_ones(tmp_path: Path, fake_run: ModuleType) -> None:
    """A pool holds a cell's own logs less the means of cell and block; without a run, normal ones of stated spreads."""
    fake_run.write(tmp_path, fake_run.Fake(blocks=8, fails="none"))
    (run,) = runs.runs(tmp_path)
    pools = simulated_searches.residuals(statistics.Noise(np.array([0.1]), "recorded", run))
    trials = run.table("trials")
    assert len(pools) == trials["cell_id"].nunique()
    assert max(abs(float(np.mean(pool))) for pool in pools) < 1e-9
    (normal,) = simulated_searches.residuals(statistics.Noise(np.array([0.1]), "stated"))
    assert np.std(normal) == pytest.approx(0.1 / math.sqrt(2), rel=0.3)


def test_a_search_without_noise_keeps_its_promises() -> None:
    """Where trials do not vary the bound holds, what is recommended is good, and far fewer trials are taken."""
    found = simulated_searches.searched("reads", 2, [[0.0]])
    assert len(WORKLOADS) >= 12
    assert all(each.regret <= min(each.bound + 1e-9, WITHIN) for each in found)
    assert all(each.trials < each.settings for each in found)


def test_a_window_counts_its_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on in steps and samples alone, a step takes what both do: nothing else is in the window."""
    clock = iter(range(10**6))
    monkeypatch.setattr(planted_tuning, "step", lambda _: next(clock))
    monkeypatch.setattr(planted_tuning.time, "perf_counter", lambda: float(next(copy(clock))))
    assert planted_tuning.window(0, None, 50) == pytest.approx(1)


def test_a_tuner_that_fails_is_named(tmp_path: Path) -> None:
    """Its last line is the reason; the section ends, the others are measured."""
    with pytest.raises(TrialError, match=r"tune.*planted_tuning.py.*ended with status 1.*No module named"):
        tuning.Tuners(tmp_path).loadtune(tuning.COSTS[0])


@pytest.mark.slow
def test_a_workload_is_tuned_and_its_truth_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recommended settings, the present one and the fastest ones have a pace, and the better are told apart."""
    monkeypatch.setattr(tuning, "BUDGET_S", 30.0)
    costs = tuning.Costs("some", {"read_ms": 2, "step_ms": 2, "num_workers": 1})
    theirs = Advice(setting=str(Setting(2, 4)), took_s=15)
    found = tuning.tune(tuning.Tuners(tmp_path), costs, lambda _: theirs, blocks=1, seconds=(0.05, 0.05))
    assert {found.present, found.feedrate.setting, theirs.setting} <= found.steps_per_s.keys()
    assert found.present == "num_workers=1"
    assert found.paces[found.feedrate.setting] > 2 * found.paces[found.present]
    assert found.trials > 2
