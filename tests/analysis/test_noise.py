"""The control cell over time, disturbances, and the grade of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials
from scipy import stats

from feedrate.analysis import noise
from feedrate.analysis.noise import CRITERIA, Grade, flagged, grade
from feedrate.machine.probes.noise import DERIVED
from feedrate.schema.columns import FLAGS, TRIALS

CELLS = [{"batch_size": 8 * n} for n in range(1, 6)]
WATCHED = {"foreign_cpu_pct": 0.5, "steal_pct": 0.0, "cpu_util_pct": 50.0, "steady": True, "half_ratio": 1.0}
LIMITS = {each.name: each for each in CRITERIA}


def run(
    blocks: int = 8, cv_pct: float = 1.0, drift_pct: float = 0.0, flags: int = 0, control: bool = True, **columns: Any
) -> pd.DataFrame:
    """Five cells that swing by ``cv_pct``; the first is the control cell, which drifts; some trials have flags."""
    swing = cv_pct / 100 * np.sqrt((blocks - 1) / blocks) if blocks > 1 else 0.0
    rates = [1000 * (1 + swing * (-1) ** block) for block in range(blocks)]
    # What all cells share is no noise of theirs: each has a little of its own.
    turns = (-1) ** np.add.outer(range(len(CELLS)), range(blocks))
    factors = 1 + 1e-4 * turns * np.abs(np.random.default_rng(0).standard_normal(turns.shape))
    cells = [(cell, list(rates * factor)) for cell, factor in zip(CELLS, factors, strict=True)]
    trials = make_trials(cells, **{**WATCHED, "role": "cell", **columns})
    extra = trials[trials["cell_id"] == trials["cell_id"][0]].assign(role="control")
    trials = pd.concat([trials, extra], ignore_index=True) if control else trials
    trials = trials.sort_values(["block", "cell_id"], kind="stable").reset_index(drop=True)
    at = np.arange(len(trials))
    trials["started_at"] = [f"2026-01-01T00:00:{second:06.3f}+00:00" for second in at * 0.1]
    control_cell = trials["cell_id"] == extra["cell_id"].iloc[0]
    growth = np.log1p(drift_pct / 100) * at / (len(at) - 1)
    trials.loc[control_cell, "samples_per_s"] *= np.exp(growth[control_cell])
    trials["flags"] = np.where(at < flags, "foreign_cpu", None)
    return trials


def change_pct(found: Grade) -> float:
    """By how much the control cell changed over the run, as the grade says it."""
    change = re.search(r"changed by ([+−][\d.]+)\s%", " ".join(found.reasons))
    assert change
    return float(change[1].replace("−", "-"))


def test_a_quiet_run_is_an_a() -> None:
    """Eight blocks, little spread, no drift, no flags: A in everything, a sentence for each."""
    found = grade(run())
    assert found.letter == "A"
    assert found.letters == dict.fromkeys(LIMITS, "A")
    assert len(found.reasons) == len(CRITERIA)
    assert all(reason.startswith("A: ") for reason in found.reasons)
    assert found.blocks == 8
    assert "0.0\u00a0% of 48 measurements carry a flag; " in found.reasons[0]
    assert (
        "A: Half of the settings vary by 1.0\u00a0% or more between repetitions; the control setting's measurements "
        "by 1.0\u00a0%." in found.reasons
    )


CASES: Mapping[str, tuple[str, dict[float, str]]] = {
    "blocks": ("blocks", {9: "A", 8: "A", 7: "B", 5: "B", 4: "C", 2: "C", 1: "D"}),
    "spread": ("cv_pct", {2.9: "A", 3.1: "B", 5.9: "B", 6.1: "C", 11.9: "C", 12.1: "D", 60: "D"}),
    "drift": ("drift_pct", {0: "A", -2: "A", 5: "B", -5: "B", 9: "C", 25: "D", -25: "D"}),
    "flagged": ("flags", {0: "A", 2: "A", 3: "B", 7: "B", 8: "C", 19: "C", 20: "D", 48: "D"}),
}
"""Criterion to the argument of ``run`` that it judges, and values with their letters."""


@pytest.mark.parametrize(
    ("criterion", "value", "letter"),
    [(name, value, letter) for name, (_, values) in CASES.items() for value, letter in values.items()],
)
def test_at_a_limit_the_better_letter_beyond_it_the_next(criterion: str, value: float, letter: str) -> None:
    """Of blocks, spread, drift in either direction, and flags; the grade says what it rests on."""
    found = grade(run(**{"cv_pct": 0.2, CASES[criterion][0]: value}))  # type: ignore[arg-type]
    assert found.letters[criterion] == letter
    assert found.letter == letter
    reasons = " ".join(found.reasons)
    if criterion == "drift":
        assert change_pct(found) == pytest.approx(value, abs=0.5)
    elif criterion == "flagged":
        share = f"{100 * value / 48:.1f}\u00a0%"
        names = f" (foreign_cpu {share})" if value else ""
        assert f"{share} of 48 measurements carry a flag{names}; " in reasons
    else:
        assert f"measured in {value} repetition" in reasons or f"vary by {value:.1f}\u00a0%" in reasons


def test_drift_that_noise_may_have_made_is_not_held_against_a_run() -> None:
    """A slope whose interval holds none is no drift; a very wide interval earns no A."""
    found = grade(run(cv_pct=2.0, blocks=4))
    assert abs(change_pct(found)) > 0.3
    assert found.letters["drift"] == "A"
    found = grade(run(cv_pct=20.0, blocks=4))
    assert abs(change_pct(found)) > 3
    assert found.letters["drift"] is None
    (drift,) = (reason for reason in found.reasons if reason.endswith("too uncertain to grade."))
    assert drift.startswith("B at best: ")


def test_the_worst_criterion_is_the_grade_and_comes_first() -> None:
    """One bad thing is enough."""
    found = grade(run(cv_pct=4.0, flags=30))
    assert found.letter == "D"
    assert found.letters == {**dict.fromkeys(LIMITS, "A"), "flagged": "D", "spread": "B"}
    assert found.reasons[:2] == (
        "D: 62.5\u00a0% of 48 measurements carry a flag (foreign_cpu 62.5\u00a0%); not told here: throttled, pressure.",
        "B: Half of the settings vary by 4.0\u00a0% or more between repetitions; the control setting's measurements "
        "by 3.9\u00a0%.",
    )
    assert [reason[0] for reason in found.reasons] == ["D", "B", "A", "A", "A", "A", "A"]


def test_without_a_control_cell_a_run_is_b_at_best() -> None:
    """A criterion that cannot be judged is named and not passed; a named control cell with times is enough."""
    trials = run(control=False)
    found, control = grade(trials), trials["cell_id"][0]
    assert (found.letter, found.letters["drift"]) == ("B", None)
    assert "B at best: Drift is not known (the control setting was not measured often enough)." in found.reasons
    assert grade(trials, control).letter == "A"
    assert grade(trials, control="no such setting").letter == "B"
    assert "Drift is not known" in " ".join(grade(trials.assign(started_at=None), control).reasons)
    short = run(cv_pct=2.0, blocks=3, control=False)  # three trials within a second of a day's run
    short.loc[len(short) - 1, "started_at"] = "2026-01-02T00:00:00.000+00:00"
    assert grade(short, control).letters["drift"] is None


def test_a_machine_that_tells_nothing_is_b_at_best() -> None:
    """As in runs from before there were such columns; unsteady trials still count against it."""
    untold = run(foreign_cpu_pct=None, steal_pct=None, cpu_util_pct=None)
    found = grade(untold)
    assert found.letter == "B"
    assert found.letters["flagged"] is None
    assert any("the machine told nothing of other work" in reason for reason in found.reasons)
    unsteady = grade(untold.assign(flags=["unsteady"] * 10 + [None] * 38))
    assert unsteady.letters["flagged"] == unsteady.letter == "C"


def test_failed_trials_are_not_graded() -> None:
    """They are no measurements; a run of nothing else is a D, and no error."""
    trials = run()
    failed = trials.assign(outcome="crash", samples_per_s=np.nan, flags="foreign_cpu")
    both = pd.concat([trials, failed.assign(cell_id="failed")], ignore_index=True)
    assert grade(both).letter == "A"
    assert any(" of 48 measurements " in reason for reason in grade(both).reasons)
    nothing = grade(failed)
    assert nothing.letter == "D"
    assert nothing.blocks == 0
    assert any(": No measurement ended well" in reason for reason in nothing.reasons)


def test_a_summary_has_a_row_a_flag() -> None:
    """Each flag has its count, how many trials could have had it, and the worst value."""
    trials = run(wall_ns=600_000_000, main_cpu_pct=90.0, workers_cpu_pct=0.0)
    trials.loc[0, ["flags", "foreign_cpu_pct"]] = ["foreign_cpu,unsteady", 150.0]
    trials.loc[1, ["flags", "foreign_cpu_pct"]] = ["foreign_cpu", 30.0]
    trials.loc[0, ["steady", "half_ratio"]] = [False, 0.5]
    trials.loc[2, ["steady", "half_ratio", "flags"]] = [False, np.nan, "unsteady"]
    trials.loc[3, "foreign_cpu_pct"] = np.nan
    found = flagged(trials).set_index("flag")
    assert list(found.index) == list(FLAGS)
    assert found.loc["foreign_cpu"].to_dict() == {
        "trials": 2,
        "watched": 47,
        "share": 2 / 48,
        "worst": 150.0,
        "measure": "foreign_cpu_pct",
        "unit": "% of one core",
    }
    assert found.loc["unsteady", ["trials", "watched", "worst"]].tolist() == [2, 48, 100.0]
    assert found.loc["gpu_shared", ["trials", "watched"]].tolist() == [0, 0]
    assert np.isnan(found.loc["gpu_shared", "worst"])
    assert set(found["measure"]) <= set(DERIVED) | {column.name for column in TRIALS}


def own(rates: list[list[float]]) -> pd.DataFrame:
    """Trials of one cell: its throughputs, block by block, in the order in which they ran."""
    rows = [
        {"block": block, "position": 16 * place, "samples_per_s": rate, "cell_id": "c", "role": "control"}
        for block, values in enumerate(rates)
        for place, rate in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["block", "position", "samples_per_s", "cell_id", "role"])


def test_the_trend_is_that_of_a_regression() -> None:
    """Slope and interval are those of least squares on logs; over an hour they are taken 3,600 times."""
    random = np.random.default_rng(3)
    at = np.sort(random.uniform(0, 900, 12))
    rates = 1000 * np.exp(1e-4 * at + random.normal(0, 0.02, 12))
    found = noise.drift_trend(at, rates)
    assert found is not None
    fit = stats.linregress(at, np.log(rates))
    half = stats.t.ppf(0.975, 10) * fit.stderr
    slopes = [fit.slope, fit.slope - half, fit.slope + half]
    assert list(found.slope.row().values()) == pytest.approx([*slopes, 12])
    hour = [math.exp(3600 * slope) for slope in slopes]
    assert list(found.over(3600).row().values()) == pytest.approx([*hour, 12])


def test_the_control_cell_is_the_one_that_ran_as_one() -> None:
    """All trials of its cell count, those that the matrix asked for too; a run without roles has none."""
    trials = pd.concat(
        [own([[1.0, 2.0]]).assign(role=["cell", "control"]), own([[3.0]]).assign(cell_id="d", role="cell")]
    )
    assert list(noise.control_trials(trials)["samples_per_s"]) == [1.0, 2.0]
    assert list(noise.control_trials(trials, "d")["samples_per_s"]) == [3.0]
    assert noise.control_trials(trials.assign(role=None)).empty
