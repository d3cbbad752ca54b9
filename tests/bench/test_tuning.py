"""What feedrate tune promises, judged on planted workloads."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from feedrate.attach.space import Setting
from feedrate.bench import scripts, tuning
from feedrate.store.bench_record import Advice, TunedWorkload

PACES = {f"num_workers={workers}": (pace,) * 8 for workers, pace in ((0, 50.0), (2, 100.0), (4, 102.0))}


def tuned(ours: int = 2, blocks: int = 8) -> TunedWorkload:
    """A workload with feedrate's choice."""
    return TunedWorkload(
        costs="some",
        present="num_workers=0",
        settings=50,
        trials=40,
        bound_pct=2.5,
        feedrate=Advice(setting=f"num_workers={ours}", took_s=30),
        blocks=blocks,
        steps_per_s=PACES,
    )


def test_every_setting_that_is_named_was_measured_in_every_block() -> None:
    """A record without is refused, with the setting or the number of blocks."""
    with pytest.raises(ValidationError, match="steps_per_s lacks num_workers=3"):
        tuned(3)
    with pytest.raises(ValidationError, match="expected 9 paces a setting"):
        tuned(blocks=9)


def test_good_settings_are_counted() -> None:
    """One bad setting of twenty may be recommended, two may not."""
    good = tuning.judge([*[tuned()] * 19, tuned(0)])
    assert good.met
    assert good.measured == "19 of 20 (regret: median 2.0 %, worst 104.0 %; 0.8 measurements a setting)"
    assert not tuning.judge([*[tuned()] * 18, *[tuned(0)] * 2]).met


@pytest.mark.slow
def test_a_workload_is_tuned_and_its_truth_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recommended settings, the present one and the fastest ones have a pace, and the better are told apart."""
    monkeypatch.setattr(tuning, "BUDGET_S", 20.0)
    choices = [Setting(workers, 2 if workers else None) for workers in (0, 1, 4)]
    monkeypatch.setattr(tuning, "settings", lambda *_, **__: choices)  # the truth of all takes a minute
    costs = scripts.Costs("some", {"sample-ms": 2, "step-ms": 2, "workers": 1})
    workload = tuning.tune(scripts.Planted(tmp_path), costs, blocks=1, seconds=(0.05, 0.05))
    assert {workload.present, workload.feedrate.setting} <= workload.steps_per_s.keys()
    assert workload.present == "num_workers=1"
    assert workload.paces[workload.feedrate.setting] > 1.3 * workload.paces[workload.present]
    assert workload.trials > 2
