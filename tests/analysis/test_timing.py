"""Two clocks of one step; no GPU is needed to see whether they are compared rightly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.analysis.steps import PHASES, cross_check, hidden_share
from feedrate.schema.axes import cell_id

Trials = Callable[..., pd.DataFrame]
CellOf = Callable[..., dict[str, Any]]
DEVICE_NS = {"h2d": 1e6, "forward": 4e6, "backward": 8e6, "optimizer": 1e6}
SYNCHRONISING_NS = 0.5e6
BLOCKS = 5


def clocked(trials_of: Trials, shorter: float = 0.8, **axes: Any) -> pd.DataFrame:
    """A step on CUDA by both clocks: serialized, each phase costs a synchronisation more; the wall clock is shorter."""
    rates = [100.0 * (1 + 0.01 * (-1) ** block) for block in range(BLOCKS)]
    frame = trials_of([(axes, rates), ({**axes, "timing": "serialized"}, rates)], device="cuda", steps=10)
    events = (frame["timing"] == "events").to_numpy()
    weather = 1 + 0.02 * frame["block"].to_numpy(dtype=np.float64)
    for phase, ns in DEVICE_NS.items():
        frame[f"device_{phase}_ns"] = np.where(events, 10 * ns * weather, np.nan)
        frame[f"host_{phase}_ns"] = np.where(events, 10 * 1000.0, 10 * (ns + SYNCHRONISING_NS) * weather)
    whole = sum(DEVICE_NS.values()) + len(DEVICE_NS) * SYNCHRONISING_NS
    return frame.assign(wall_ns=10 * whole * weather * np.where(events, shorter, 1))


def test_each_phase_is_compared_with_its_serialized_self(trials_of: Trials, cell_of: CellOf) -> None:
    """Device span ÷ host phase, and not the host's launches, paired by block so that drift leaves the ratio alone."""
    found = cross_check(clocked(trials_of)).set_index("phase")
    assert list(found.index) == list(PHASES)
    for phase, ns in DEVICE_NS.items():
        assert found.loc[phase, "ratio"] == pytest.approx(ns / (ns + SYNCHRONISING_NS))
    assert set(found["n"]) == {BLOCKS}
    assert (found["hi"] - found["lo"] < 1e-6).all()
    assert set(found["cell_events"]) == {cell_id(cell_of({}, "cuda"))}
    assert set(found["cell_serialized"]) == {cell_id(cell_of({"timing": "serialized"}, "cuda"))}


def test_a_phase_that_a_cell_has_not_is_left_out(trials_of: Trials) -> None:
    """A copy alone has no forward pass; another number of steps changes nothing, as times are a step's."""
    frame = clocked(trials_of, mode="copy")
    frame[[f"{clock}_{phase}_ns" for clock in ("device", "host") for phase in PHASES[1:]]] = np.nan
    serialized = (frame["timing"] == "serialized").to_numpy()
    frame.loc[serialized, ["steps", "host_h2d_ns"]] *= 3
    found = cross_check(frame)
    assert found["phase"].tolist() == ["h2d"]
    assert found["ratio"].tolist() == pytest.approx([1 / 1.5])


def test_overlap_hides_what_the_wall_clock_saves(trials_of: Trials) -> None:
    """1 - events ÷ serialized, with its interval the right way round."""
    frame = clocked(trials_of, shorter=0.8)
    frame["wall_ns"] *= 1 + 0.01 * (np.arange(len(frame)) % 3)
    (row,) = hidden_share(frame).to_dict("records")
    assert row["hidden"] == pytest.approx(0.2, abs=0.02)
    assert row["lo"] < row["hidden"] < row["hi"]
    assert row["n"] == BLOCKS
    assert hidden_share(clocked(trials_of, shorter=1.1))["hidden"][0] == pytest.approx(-0.1)


def test_cells_that_differ_in_more_and_runs_without_cuda_have_no_cross_check(trials_of: Trials) -> None:
    """Another batch size or another run is another cell; on a CPU nothing is serialized."""
    rates = [100.0] * BLOCKS
    apart = trials_of([({}, rates), ({"timing": "serialized", "batch_size": 8}, rates)], device="cuda", steps=10)
    both = clocked(trials_of)
    runs = both.assign(run_id=np.where(both["timing"] == "events", "one", "two"))
    for frame in (apart, runs, trials_of([({}, rates)]), trials_of([])):
        assert len(cross_check(frame)) == len(hidden_share(frame)) == 0
        assert {"ratio", "n"} <= set(cross_check(frame).columns)
