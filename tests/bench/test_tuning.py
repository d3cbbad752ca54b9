"""What feedrate tune promises, judged on planted workloads."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from feedrate.bench import planted, scripts, tuning
from feedrate.schema.errors import TrialError
from feedrate.store.bench_record import Advice, TunedWorkload

PACES = {f"num_workers={workers}": (pace,) * 8 for workers, pace in ((0, 50.0), (2, 100.0), (4, 102.0))}


def tuned(ours: int = 2, **changes: Any) -> TunedWorkload:
    """A workload with feedrate's choice."""
    alike: dict[str, Any] = {
        "costs": "some",
        "present": "num_workers=0",
        "settings": 50,
        "trials": 40,
        "bound_pct": 2.5,
        "feedrate": Advice(setting=f"num_workers={ours}", took_s=30),
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


def test_a_window_counts_its_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on in steps alone, a step takes what they do: nothing else is in the window."""
    clock = iter(range(10**6))
    monkeypatch.setattr(planted, "planted_step", lambda _: lambda: next(clock))
    monkeypatch.setattr(planted.time, "perf_counter", lambda: float(next(copy(clock))))
    options = planted.parsed(["--sample-ms", "0", "--steps", "1000", "--seconds", "50"])
    assert planted.window(options, 0, None) == pytest.approx(1)


def test_a_script_that_fails_is_named(tmp_path: Path) -> None:
    """Its last line is the reason; the section ends, the others are measured."""
    costs = scripts.Costs("some", {"kind": "neither"})
    with pytest.raises(TrialError, match=r"planted\.py:make ended with status 2"):
        tuning.tune(scripts.Planted(tmp_path), costs)


@pytest.mark.slow
def test_a_workload_is_tuned_and_its_truth_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recommended settings, the present one and the fastest ones have a pace, and the better are told apart."""
    monkeypatch.setattr(tuning, "BUDGET_S", 30.0)
    costs = scripts.Costs("some", {"sample-ms": 2, "step-ms": 2, "workers": 1})
    found = tuning.tune(scripts.Planted(tmp_path), costs, blocks=1, seconds=(0.05, 0.05))
    assert {found.present, found.feedrate.setting} <= found.steps_per_s.keys()
    assert found.present == "num_workers=1"
    assert found.paces[found.feedrate.setting] > 1.3 * found.paces[found.present]
    assert found.trials > 2
