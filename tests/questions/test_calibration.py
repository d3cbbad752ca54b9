"""Calibration: planted costs read back from records whose truth is known, effects, equal pairs and bottlenecks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials

from feedrate.questions.calibration.analysis import (
    BOTTLENECK_COLUMNS,
    EFFECT_COLUMNS,
    PAIR_COLUMNS,
    PLANTED_COLUMNS,
    bottlenecks,
    effects,
    planted,
    same_pairs,
    summary,
)

STEPS = 50
US, MS = 1e3, 1e6
WEATHER = (1.0, 1.004, 0.996, 1.002)
"""What real costs are multiplied with, block by block; planted ones keep their length."""
REAL_US = {"read": 5.0, "decode": 3.0, "transform": 30.0}
"""A sample."""
COLLATE_US, REST_US, BYTES = 50.0, 200.0, 6144
DATA = {"workload": "synthetic", "storage_format": "lmdb", "batch_size": 8}
LOAD = {**DATA, "mode": "load"}
STEP = {**DATA, "mode": "train", "step": "emulated"}


def number(row: Mapping[str, Any], axis: str) -> float:
    return 0.0 if pd.isna(row[axis]) else float(row[axis])


def costs(row: Mapping[str, Any], late_us: float) -> dict[str, float]:
    """What one trial would record, each read being late by so many microseconds."""
    weather, batch = WEATHER[row["block"]], number(row, "batch_size")
    stages = {stage: batch * us * weather for stage, us in REAL_US.items()} | {"collate": COLLATE_US * weather}
    if waits := number(row, "read_us"):
        stages["read"] += batch * (waits + late_us)
        stages["transform"] *= 1.5  # caches have gone cold
    stages["decode"] += batch * number(row, "decode_us")
    stages["collate"] += number(row, "collate_us")
    step = number(row, "step_ms") * MS if row["mode"] == "train" else 0.0
    wall = (sum(stages.values()) + REST_US * weather) * US + step
    if workers := number(row, "num_workers"):
        wall = max(step, sum(stages.values()) * US / workers)
    return {
        "steps": STEPS,
        "wall_ns": STEPS * wall,
        "samples": STEPS * batch,
        "samples_per_s": batch * 1e9 / wall,
        "host_forward_ns": STEPS * step,
        **{f"worker_{stage}_ns": STEPS * us * US for stage, us in stages.items()},
        "batch_bytes": batch * (BYTES + number(row, "payload_bytes")),
    }


def ran(cells: Sequence[Mapping[str, Any]], late_us: float = 0.0) -> pd.DataFrame:
    """Trials of cells that cost what their axes plant, and what everything costs anyway."""
    frame = make_trials([(cell, [1.0] * len(WEATHER)) for cell in cells]).astype(object)
    found = pd.DataFrame([costs(row, late_us) for row in frame.to_dict("records")], index=frame.index)
    return frame.drop(columns=[name for name in found if name in frame]).join(found)


def one(frame: pd.DataFrame, **wanted: Any) -> dict[str, Any]:
    (row,) = [row for row in frame.to_dict("records") if all(row[name] == value for name, value in wanted.items())]
    return row


@pytest.mark.parametrize("late_us", [0.0, 20.0])
def test_stages_are_read_back(late_us: float) -> None:
    """Planted costs come back exactly, real costs subtracted block by block; an error is told as such."""
    cell = {"read_us": 1000, "decode_us": 500, "collate_us": 4000}
    found = planted(ran([LOAD, {**LOAD, **cell}], late_us))
    assert tuple(found.columns) == PLANTED_COLUMNS
    assert found["quantity"].tolist() == ["read", "decode", "collate", "batch"]
    expected = {"read": (1000, 1000 + late_us), "decode": (500, 500), "collate": (4000, 4000)}
    expected["batch"] = (16.0, 16.0 + 8 * late_us / 1000)
    for quantity, (truth, measured) in expected.items():
        row = one(found, quantity=quantity)
        assert (row["planted"], row["n"]) == (truth, len(WEATHER))
        assert row["measured"] == pytest.approx(measured, rel=1e-9)
        assert row["error_pct"] == pytest.approx(100 * (measured / truth - 1), abs=1e-6)
        assert row["lo"] == pytest.approx(row["measured"], rel=1e-6)


def test_the_truth_of_waits_is_what_was_dealt() -> None:
    """Where a window's reads were to wait longer than the mean, that is planted, and makes neither error nor spread."""
    shaped = {"read_us": 1000, "read_shape": "jittered"}
    frame = ran([LOAD, {**LOAD, **shaped}])
    slow = (frame["read_us"] == 1000).to_numpy()
    dealt = np.array([980.0, 1050.0, 1010.0, 1000.0])[frame.loc[slow, "block"].astype(int)]
    frame.loc[slow, "planted_read_ns"] = dealt * STEPS * 8 * US
    frame.loc[slow, ["worker_read_ns", "wall_ns"]] += ((dealt - 1000) * STEPS * 8 * US)[:, None]
    found = planted(frame)
    for quantity, truth in (("read", 1010.0), ("batch", 8.08)):
        row = one(found, quantity=quantity)
        assert [row["planted"], row["measured"], row["lo"]] == pytest.approx([truth] * 3, rel=1e-6)
        assert row["error_pct"] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_what_is_taken_off_comes_from_cells_that_compare() -> None:
    """Reading is taken off from any cell with a worker at most; collating only from the same batch and workers."""
    busy = ran([{**LOAD, "num_workers": 4}, {**LOAD, "read_us": 1000, "num_workers": 2}])
    assert planted(busy).empty
    calm = ran([{**LOAD, "batch_size": 16}, {**LOAD, "read_us": 1000, "collate_us": 4000}])
    assert planted(calm)["quantity"].tolist() == ["read"]
    laden = {**LOAD, "payload_bytes": 1000}
    collating = ran([laden, {**LOAD, "collate_us": 4000}])
    assert "collate" not in set(planted(collating)["quantity"])


def test_workers_that_share_cores_are_not_read_back() -> None:
    """With several workers waits come back, but nothing of a cell that plants computing; with one, all do."""
    cells = [LOAD, {**LOAD, "num_workers": 1}]
    cells += [{**LOAD, "num_workers": workers, "read_us": 1000} for workers in (1, 2)]
    cells += [{**LOAD, "num_workers": workers, "read_us": 1000, "decode_us": 500} for workers in (1, 2)]
    found = planted(ran(cells))
    seen = sorted((row["quantity"], row["num_workers"], row["decode_us"]) for row in found.to_dict("records"))
    assert seen == [("decode", 1, 500), ("read", 1, 0), ("read", 1, 500), ("read", 2, 0)]


@pytest.mark.slow
def test_nothing_to_read_back() -> None:
    """A run without planted cells, or without any cell that ended well, gives empty tables with their columns."""
    plain = ran([LOAD])
    failed = make_trials([({**LOAD, "read_us": 1000, "replica": replica}, [None, None]) for replica in (0, 1)])
    for frame in (plain, failed):
        for found, columns in (
            (planted(frame), PLANTED_COLUMNS),
            (effects(frame), EFFECT_COLUMNS),
            (same_pairs(frame), PAIR_COLUMNS),
            (bottlenecks(frame), BOTTLENECK_COLUMNS),
        ):
            assert tuple(found.columns) == columns
            assert found.empty
        assert summary(planted(frame)).empty


def test_effects_are_held_against_their_truth() -> None:
    """Of steps of 20, 20.2 and 21 ms 5 % is called different and 1 % is not."""
    cells = [LOAD, *({**STEP, "step_ms": ms} for ms in (20.0, 20.2, 21.0))]
    cells += [{**cell, "replica": 1} for cell in cells[:2]]
    found = effects(ran(cells))
    assert tuple(found.columns) == EFFECT_COLUMNS
    assert len(found) == 4
    small, large = one(found, a_value=20.0, b_value=20.2), one(found, a_value=20.0, b_value=21.0)
    rest = (8 * sum(REAL_US.values()) + COLLATE_US + REST_US) * np.mean(WEATHER) / 1000
    assert large["planted"] == pytest.approx((20 + rest) / (21 + rest), rel=1e-6)
    assert large["ratio"] == pytest.approx(large["planted"], rel=1e-4)
    assert (small["verdict"], small["expected"]) == ("no difference", "not different")
    assert (large["verdict"], large["expected"]) == ("slower", "slower")
    assert one(found, axis="replica")["planted"] == 1
    assert found["right"].all()


@pytest.mark.parametrize(
    ("ms", "factor", "right"), [(20.2, 0.95, False), (21.0, 1.05, False), (20.5, 1.0, True), (20.0, 0.95, False)]
)
def test_a_wrong_verdict_is_not_right(ms: float, factor: float, right: bool) -> None:
    """Verdicts that contradict a planted effect are wrong; effects between the margins allow either verdict."""
    other = {**STEP, "step_ms": ms, "replica": int(ms == 20.0)}
    frame = ran([LOAD, {**STEP, "step_ms": 20.0}, other])
    second = (frame["step_ms"].eq(ms) & frame["replica"].eq(other["replica"])).to_numpy()
    frame.loc[second, "samples_per_s"] *= factor
    (row,) = effects(frame).to_dict("records")
    assert row["right"] is right or row["right"] == right
    assert row["error_pct"] == pytest.approx(100 * (factor - 1), abs=0.01)
    assert row["inside"] == (factor == 1.0)


@pytest.mark.parametrize("factor", [1.005, 0.995])
def test_equal_pairs(factor: float) -> None:
    """Every two replicas of a cell are a pair; one whose interval leaves out 1 counts, however small it is."""
    cells = [{**LOAD, "replica": replica} for replica in (0, 1, 2)] + [{**LOAD, "batch_size": 16}]
    frame = ran(cells)
    assert len(same_pairs(frame)) == 3
    assert not same_pairs(frame)["different"].any()
    third = frame["replica"].eq(2)
    found = same_pairs(frame.assign(samples_per_s=frame["samples_per_s"].mask(third, frame["samples_per_s"] * factor)))
    assert found["different"].tolist() == [False, True, True]
    assert set(found["verdict"]) == {"no difference"}


def test_bottlenecks_are_as_planted() -> None:
    """The slower of loader and step is named; those too near each other are left out."""
    slow = {"read_us": 2000}
    cells = [
        LOAD,
        {**STEP, **slow, "step_ms": 5.0},
        {**STEP, **slow, "step_ms": 40.0},
        {**STEP, **slow, "step_ms": 15.0},
    ]
    cells += [{**STEP, **slow, "step_ms": 15.0, "num_workers": 4}, {**STEP, "step_ms": 10.0}]
    loaders = [{**LOAD, **slow}, {**LOAD, **slow, "num_workers": 4}]
    frame = ran([*cells, *loaders])
    found = bottlenecks(frame)
    assert tuple(found.columns) == BOTTLENECK_COLUMNS
    assert found["apart"].tolist() == pytest.approx([3.2, 2.5, 3.75, np.inf])
    assert found["truth"].tolist() == ["loader-bound", *["emulated-step-bound"] * 3]
    assert found["right"].all()
    fast = (frame["mode"] == "load") & frame["read_us"].eq(2000) & frame["num_workers"].eq(0)
    faster = frame.assign(samples_per_s=frame["samples_per_s"].mask(fast, frame["samples_per_s"] * 10))
    assert bottlenecks(faster)["right"].tolist() == [False, True, True, True]
