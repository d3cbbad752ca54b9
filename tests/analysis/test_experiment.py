"""The experiment's ratios: which cells of a run belong to it, and that none takes another's place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import pytest

from feedrate.questions.experiment import analysis as experiment_analysis
from feedrate.schema.axes import Value
from feedrate.schema.errors import InputError

Trials = Callable[..., pd.DataFrame]
Cell = Mapping[str, Value]
TRAINED: dict[str, Any] = {"mode": "train", "workload": "div2k", "batch_size": 128, "num_workers": 8}
BLOCKS = 4


def rates(level: float | None) -> list[float | None]:
    return [level] * BLOCKS


def settled(found: pd.DataFrame) -> dict[str, float]:
    """Workload to the ratio of its only row, rounded."""
    rows = experiment_analysis.by_batch(found, "pin_memory")
    ratios = [(str(setting["workload"]), row["ratio"]) for setting, of_batch in rows for row in of_batch.values()]
    assert len(dict(ratios)) == len(ratios)
    return {workload: round(float(ratio), 6) for workload, ratio in ratios}


@pytest.mark.parametrize(
    "other",
    [
        {"non_blocking": True},
        {"prefetch_factor": 4},
        {"timing": "serialized"},
        {"prefetcher": "stream"},
        {"amp": "bf16"},
        {"replica": 1},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_is_not_the_experiment_s_stays_at_its_default(trials_of: Trials, other: Cell) -> None:
    """Pinning doubles throughput at the defaults and makes it five times elsewhere: two is what the ratio says."""
    pinned = {**TRAINED, "pin_memory": True}
    elsewhere = [({**TRAINED, **other}, rates(100.0)), ({**pinned, **other}, rates(500.0))]
    trials = trials_of([(TRAINED, rates(100.0)), (pinned, rates(200.0)), *elsewhere], device="cuda")
    found = experiment_analysis.experiment_contrasts(trials)
    assert set(found["axis"]) == {"pin_memory"}
    assert settled(experiment_analysis.ratios_between(found, "pin_memory", a=False, b=True)) == {"div2k": 2.0}


def test_photographs_of_two_kinds_stand_apart(trials_of: Trials) -> None:
    """A run that trains on DIV2K and on its stand-in has a ratio of each, and no ratio of the two."""
    cells = [
        ({**TRAINED, "workload": workload, "pin_memory": pin}, rates(rate))
        for workload, pin, rate in (
            ("div2k", False, 100.0),
            ("div2k", True, 200.0),
            ("div2k_standin", False, 100.0),
            ("div2k_standin", True, 300.0),
        )
    ]
    found = experiment_analysis.experiment_contrasts(trials_of(cells, device="cuda"))
    assert settled(experiment_analysis.ratios_between(found, "pin_memory", a=False, b=True)) == {
        "div2k": 2.0,
        "div2k_standin": 3.0,
    }


def test_two_ratios_of_one_setting_are_refused(trials_of: Trials) -> None:
    """Contrasts of two runs at once have two of each: none takes the other's place silently."""
    trials = trials_of([(TRAINED | {"batch_size": 8}, rates(100.0)), (TRAINED, rates(200.0))])
    found = experiment_analysis.epochs(experiment_analysis.experiment_contrasts(trials))
    assert len(experiment_analysis.by_batch(found)) == 1
    with pytest.raises(InputError, match=r"two at batch_size 128 with .*'num_workers': 8.*; expected one"):
        experiment_analysis.by_batch(pd.concat([found, found]))


def test_what_only_failed_is_no_ratio(trials_of: Trials) -> None:
    """A batch size whose every trial failed is in no row and does not count; blocks that both sides have do."""
    cells = [
        ({**TRAINED, "batch_size": 8}, rates(100.0)),
        ({**TRAINED, "batch_size": 32}, rates(None)),
        ({**TRAINED, "batch_size": 128}, [None, 400.0, 400.0, None]),
    ]
    trials = trials_of(cells)
    (row,) = experiment_analysis.epochs(experiment_analysis.experiment_contrasts(trials)).to_dict("records")
    assert (row["batch_size"], row["n"], round(row["ratio"], 6)) == (128, 2, 0.25)
    assert experiment_analysis.batch_sizes(trials) == 2


@pytest.mark.parametrize("cell", [{**TRAINED, "workload": "synthetic"}, {**TRAINED, "mode": "compute"}])
def test_a_run_without_the_experiment_has_no_ratios(trials_of: Trials, cell: Cell) -> None:
    """Other data and other stages are none of it, whatever their batch sizes."""
    trials = trials_of([({**cell, "batch_size": batch}, rates(100.0)) for batch in experiment_analysis.BATCHES])
    assert experiment_analysis.batch_sizes(trials) == 0
    assert experiment_analysis.epochs(experiment_analysis.experiment_contrasts(trials)).empty
