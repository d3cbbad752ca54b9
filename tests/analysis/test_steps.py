"""Which trials a timeline shows; and two clocks of one step, which no GPU is needed to compare rightly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_cell, make_trials

from feedrate.analysis.steps import PHASES, cross_check, select_trials
from feedrate.schema.axes import Value, cell_id

DEVICE_NS = {"h2d": 1e6, "forward": 4e6, "backward": 8e6, "optimizer": 1e6}
SYNCHRONISING_NS = 0.5e6
BLOCKS = 5


def clocked(**axes: Any) -> pd.DataFrame:
    """A step on CUDA by both clocks: serialized, each phase costs a synchronisation more; the wall clock is shorter."""
    rates = [100.0 * (1 + 0.01 * (-1) ** block) for block in range(BLOCKS)]
    frame = make_trials([(axes, rates), ({**axes, "timing": "serialized"}, rates)], device="cuda", steps=10)
    events = (frame["timing"] == "events").to_numpy()
    weather = 1 + 0.02 * frame["block"].to_numpy(dtype=np.float64)
    for phase, ns in DEVICE_NS.items():
        frame[f"device_{phase}_ns"] = np.where(events, 10 * ns * weather, np.nan)
        frame[f"host_{phase}_ns"] = np.where(events, 10 * 1000.0, 10 * (ns + SYNCHRONISING_NS) * weather)
    whole = sum(DEVICE_NS.values()) + len(DEVICE_NS) * SYNCHRONISING_NS
    return frame.assign(wall_ns=10 * whole * weather * np.where(events, 0.8, 1))


def test_each_phase_is_compared_with_its_serialized_self() -> None:
    """Device span ÷ host phase, and not the host's launches, paired by block so that drift leaves the ratio alone."""
    found = cross_check(clocked()).set_index("phase")
    assert list(found.index) == list(PHASES)
    for phase, ns in DEVICE_NS.items():
        assert found.loc[phase, "ratio"] == pytest.approx(ns / (ns + SYNCHRONISING_NS))
    assert set(found["n"]) == {BLOCKS}
    assert (found["hi"] - found["lo"] < 1e-6).all()
    assert set(found["cell_events"]) == {cell_id(make_cell({}, "cuda"))}
    assert set(found["cell_serialized"]) == {cell_id(make_cell({"timing": "serialized"}, "cuda"))}


TRAIN: dict[str, Value] = {"mode": "train", "workload": "synthetic", "storage_format": "png"}
SLEEP: dict[str, Value] = {**TRAIN, "step": "emulated"}
LOAD: dict[str, Value] = {**TRAIN, "mode": "load"}


def run(*rates: Any, device: str = "cpu") -> pd.DataFrame:
    """Trials of cells, each with a name."""
    frame = make_trials(rates, device=device)
    return frame.assign(trial_id=[f"t{number:03d}" for number in range(len(frame))])


def chosen(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    told = select_trials(frame)
    return list(zip(told["mode"], told["step"], told["batch_size"], told["num_workers"], strict=True))


def test_the_pair_that_is_farthest_apart_is_told() -> None:
    """Fewest workers beside the fastest, at the batch at which workers give most; other axes never differ in a pair."""
    frame = run(
        ({**SLEEP, "batch_size": 8, "num_workers": 0}, [100, 110]),
        ({**SLEEP, "batch_size": 8, "num_workers": 2}, [150, 160]),
        ({**SLEEP, "batch_size": 32, "num_workers": 0}, [100, 110]),
        ({**SLEEP, "batch_size": 32, "num_workers": 2}, [290, 310]),
        ({**SLEEP, "batch_size": 32, "num_workers": 4}, [200, 210]),
        ({**SLEEP, "batch_size": 64, "num_workers": 4}, [2000, 2100]),
    )
    assert chosen(frame) == [("train", "emulated", 32, 0), ("train", "emulated", 32, 2)]


def test_real_training_comes_before_an_emulated_step_and_loading_alone_is_the_last_resort() -> None:
    """A pair of each kind of step is chosen; loading alone only if nothing was trained."""
    cells = [
        ({**kind, "num_workers": n}, [rate * (1 + n)])
        for kind, rate in ((LOAD, 900), (SLEEP, 80), (TRAIN, 60))
        for n in (0, 1)
    ]
    spins = [({**TRAIN, "step": "spin", "num_workers": n}, [500 * (1 + 9 * n)]) for n in (0, 1)]
    for emulated, more in (("emulated", []), ("spin", spins)):
        kinds = [
            (mode, None if pd.isna(step) else step) for mode, step, *_ in chosen(run(*cells, *more, device="cuda"))
        ]
        assert kinds == [("train", "real")] * 2 + [("train", emulated)] * 2
    assert [mode for mode, *_ in chosen(run(*cells[:2]))] == ["load", "load"]


def test_the_median_trial_is_told() -> None:
    """Of trials that ended well, the one in the middle by throughput; the cell's own estimate stands beside it."""
    frame = run(({**TRAIN, "num_workers": 0}, [50, None, 90, 70, 10]), ({**TRAIN, "num_workers": 2}, [100, 100, 102]))
    first, second = select_trials(frame).to_dict("records")
    assert (first["trial_samples_per_s"], first["block"], first["n"]) == (50, 0, 4)
    assert first["trial_id"] == "t000"
    assert (second["trial_samples_per_s"], second["n"]) == (100, 3)
    assert second["lo"] < second["samples_per_s"] < second["hi"]
