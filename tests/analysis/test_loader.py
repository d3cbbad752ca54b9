"""What loading costs: a sample, a step that waits, and workers beside time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_cell, make_trials
from scipy import stats

from feedrate.analysis.loader import growth, overlap, respawn, shared_memory, stages, startup, terminations
from feedrate.schema.axes import Value, cell_id
from feedrate.schema.columns import TRIALS

MS = 1e6
STEPS = 10
STEADY = [1000.0, 1010.0, 990.0, 1000.0]
LOAD = {"mode": "load", "num_workers": 2, "batch_size": 8}
TRAIN = {"num_workers": 2, "batch_size": 8}
LOADS: dict[str, Value] = {"mode": "load", "workload": "synthetic", "batch_size": 8, "num_workers": 2}
MIB = 2**20
RATE = 1000.0


def stamped(frame: pd.DataFrame, **stage_ms: float) -> pd.DataFrame:
    """Each batch took so many milliseconds of each stage, stages that are not named none."""
    times = {"read": 0.0, "decode": 0.0, "transform": 0.0, "collate": 0.0} | stage_ms
    return frame.assign(steps=STEPS, **{f"worker_{stage}_ns": STEPS * ms * MS for stage, ms in times.items()})


def paced(fetch_ms: float, load_ms: float, workers: int = 2, **columns: Any) -> pd.DataFrame:
    """A training cell that waits for its batches, and its loader alone, which takes so long for each."""
    axes = {"num_workers": workers, "batch_size": 8}
    both = make_trials([(axes, STEADY), ({"mode": "load", **axes}, STEADY)], steps=STEPS, **columns)
    train = (both["mode"] == "train").to_numpy()
    weather = 1 + 0.05 * both["block"].to_numpy(dtype=np.float64)
    wobble = 1 + 0.01 * (both["block"].to_numpy(dtype=np.float64) % 2)
    return both.assign(
        host_fetch_ns=STEPS * MS * weather * np.where(train, fetch_ms * wobble, load_ms),
        wall_ns=STEPS * MS * weather * np.where(train, 50.0, load_ms),
    )


def test_a_samples_cost_is_a_batchs_divided() -> None:
    """Microseconds a sample, shares of the workers' own time, and how busy two workers are."""
    frame = stamped(make_trials([(LOAD, STEADY)]), read=8.0, decode=4.0, transform=3.0, collate=1.0)
    (row,) = stages(frame.assign(wall_ns=STEPS * 10 * MS)).to_dict("records")
    names = ("read", "decode", "transform", "collate")
    assert [row[f"{name}_us_per_sample"] for name in names] == pytest.approx([1000, 500, 375, 125])
    assert [row[f"{name}_share"] for name in names] == pytest.approx([0.5, 0.25, 0.1875, 0.0625])
    assert row["worker_busy_share"] == pytest.approx(16 / (2 * 10))
    assert (row["dominant"], row["n"]) == ("read", len(STEADY))
    alone = stamped(make_trials([({"mode": "load"}, STEADY)]), read=8.0)
    assert stages(alone.assign(wall_ns=STEPS * 10 * MS))["worker_busy_share"].tolist() == pytest.approx([0.8])


@pytest.mark.parametrize(
    ("stage_ms", "word"),
    [
        ({"read": 5.0, "decode": 4.0}, "fetch-bound"),
        ({"read": 4.0, "decode": 3.0, "transform": 1.0, "collate": 1.0}, "preparation-bound"),
    ],
)
def test_a_loader_is_bound_by_fetching_or_by_preparing(stage_ms: dict[str, float], word: str) -> None:
    """Half of the workers' time decides, also when reading is the largest of four; a loader alone is always asked."""
    frame = stamped(make_trials([(TRAIN, STEADY), (LOAD, STEADY)]), **stage_ms)
    waiting = frame.assign(host_fetch_ns=0.9 * frame["wall_ns"], host_forward_ns=0.1 * frame["wall_ns"])
    assert stages(waiting)["bound"].tolist() == [word, word]
    computing = frame.assign(host_fetch_ns=0.1 * frame["wall_ns"], host_forward_ns=0.9 * frame["wall_ns"])
    found = stages(computing)["bound"]
    assert found.isna().tolist() == [True, False]
    assert found[1] == word


def test_hidden_is_what_is_not_waited_for() -> None:
    """Two milliseconds of a batch that takes eight: three quarters are hidden, by block, whatever the drift."""
    (row,) = overlap(paced(fetch_ms=2, load_ms=8)).to_dict("records")
    assert row["cell_id"] == cell_id(make_cell(TRAIN))
    assert row["fetch_hidden"] == pytest.approx(0.75, abs=0.002)
    assert row["fetch_hidden_lo"] < row["fetch_hidden"] < row["fetch_hidden_hi"]
    assert row["fetch_hidden_hi"] - row["fetch_hidden_lo"] < 0.01
    assert (row["fetch_n"], row["copy_n"]) == (len(STEADY), 0)
    assert row["load_batch_ms"] == pytest.approx(8 * 1.075)
    assert np.isnan(row["copy_hidden"])


def test_a_copy_is_hidden_as_far_as_compute_does_not_wait() -> None:
    """Of 3 ms of copying, compute waits for 1; on a CPU the share is null."""
    frame = paced(2, 8).assign(device_h2d_ns=STEPS * 3 * MS, device_h2d_exposed_ns=STEPS * 1 * MS)
    assert overlap(frame)["copy_hidden"][0] == pytest.approx(2 / 3)
    whole = frame.assign(device_h2d_exposed_ns=frame["device_h2d_ns"])
    assert overlap(whole)["copy_hidden"][0] == 0


def measured(*cells: tuple[Mapping[str, Value], Mapping[str, Sequence[Any]]]) -> pd.DataFrame:
    """Cells with columns by block: (axes, column to a value a block; None is a trial that failed)."""
    frames = []
    for axes, columns in cells:
        failed = [None in values for values in zip(*columns.values(), strict=True)]
        frame = make_trials([({**LOADS, **axes}, [None if bad else RATE for bad in failed])])
        frames.append(frame.assign(**{name: list(values) for name, values in columns.items()}))
    whole = pd.concat([frame.astype(object) for frame in frames], ignore_index=True)
    return whole.astype({c.name: {"int64": "Int64", "bool": "boolean"}.get(c.dtype, c.dtype) for c in TRIALS})


def checked(ends_by: str, guarded: bool, seen: Sequence[tuple[bool, float]], outcome: str = "ok") -> pd.DataFrame:
    """Checks of one way of ending: whether workers were left, and the seconds that they lived for."""
    same = {"mode": "check", "check": "termination", "ends_by": ends_by, "guarded": guarded, "outcome": outcome}
    rows = [{**same, "fact": fact, "fact_value": seconds, "evidence": f"{ends_by} {seconds}"} for fact, seconds in seen]
    return pd.DataFrame(rows, columns=[column.name for column in TRIALS])


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width, by SciPy."""
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def test_terminations_are_summed_up_by_how_they_ended() -> None:
    """Each way of ending has its count, median and longest evidence; plain before guarded, failures left out."""
    trials = pd.concat(
        [
            checked("sigkill", True, [(False, 0.0)] * 2),
            checked("sigkill", False, [(True, 5.0), (True, 7.0), (False, 0.3)]),
            checked("exception", False, [(False, 0.1)]),
            checked("sigint", False, [(True, 9.0)], outcome="error"),
        ],
        ignore_index=True,
    )
    found = terminations(trials)
    assert found["ends_by"].tolist() == ["exception", "sigkill", "sigkill"]
    assert found["guarded"].tolist() == [False, False, True]
    plain = found.iloc[1]
    assert [plain[name] for name in ("n", "left", "gone_s", "gone_least_s", "gone_most_s")] == [3, 2, 5.0, 0.3, 7.0]
    assert plain["evidence"] == "sigkill 7.0"


def test_startup_compares_cells_that_differ_in_their_workers_only() -> None:
    """The geometric mean over blocks with its interval; cells that stand alone are left out."""
    times = [40e6, 50e6, 60e6]
    trials = measured(
        ({"start_method": "spawn"}, {"startup_ns": times}),
        ({"num_workers": 0}, {"startup_ns": [2e6] * 3}),
        ({"loader": "threads"}, {"startup_ns": [3e6, None, 3e6]}),
        ({"batch_size": 16}, {"startup_ns": [9e6] * 3}),
    )
    found = startup(trials)
    assert found["setting"].nunique() == 1
    settings = found[["num_workers", "loader", "start_method"]].to_numpy().tolist()
    assert settings == [[0, "torch", "fork"], [2, "threads", "fork"], [2, "torch", "spawn"]]
    mean, half = t_interval(list(np.log(np.array(times) / 1e6)))
    row = found.iloc[2]
    assert [row["startup_ms"], row["startup_ms_lo"], row["startup_ms_hi"]] == pytest.approx(
        [np.exp(mean), np.exp(mean - half), np.exp(mean + half)]
    )
    assert list(found["n"]) == [3, 2, 3]


def test_respawn_is_the_paired_difference_of_an_epoch() -> None:
    """Epochs are compared block by block; a block with a failed side is dropped."""
    weather = [0.0, 500.0, -300.0, 0.0]
    anew = [1000 + each for each in weather]
    kept = [1000 - cost + each for cost, each in zip((30, 40, 50, 0), weather, strict=True)]
    epochs = [2, 4, 5, 2]
    trials = measured(
        *(
            (
                {"epoch_steps": 8, "persistent_workers": side},
                {
                    "wall_ns": [round(ms * 1e6 * n) for ms, n in zip(values, epochs, strict=True)],
                    "epochs": [*epochs[:3], epochs[3] if side else None],
                },
            )
            for side, values in ((True, kept), (False, anew))
        ),
        ({"epoch_steps": 64, "persistent_workers": True}, {"wall_ns": [10**9] * 4, "epochs": [1] * 4}),
    )
    (row,) = respawn(trials).to_dict("records")
    mean, half = t_interval([30, 40, 50])
    assert [row["respawn_ms"], row["respawn_ms_lo"], row["respawn_ms_hi"]] == pytest.approx(
        [mean, mean - half, mean + half]
    )
    assert row["anew_ms"] - row["kept_ms"] == pytest.approx(mean)
    assert (row["epoch_steps"], row["n"], row["persistent_workers"]) == (8, 3, None)


def grown(start: Sequence[float | None], end: Sequence[float], pss: Sequence[float]) -> dict[str, list[Any]]:
    known = {"workers_uss_start_bytes": [None if each is None else round(each * MIB) for each in start]}
    sizes = {"workers_uss_end_bytes": end, "pss_peak_bytes": pss}
    return {**known, **{name: [round(each * MIB) for each in values] for name, values in sizes.items()}}


@pytest.fixture
def indexed() -> pd.DataFrame:
    """A list that grows, arrays that do not, and a list that spawned workers hold from the start."""
    cells: list[tuple[dict[str, Value], dict[str, list[Any]]]] = [
        ({"index_kind": "list"}, grown([20, 20, None], [60, 70, 65], [400, 410, 405])),
        ({"index_kind": "numpy"}, grown([20, 20, 20], [20, 20, 20], [290, 290, 290])),
        ({"index_kind": "list", "start_method": "spawn"}, grown([900] * 3, [800] * 3, [1200] * 3)),
    ]
    frames = [
        make_trials([({**LOADS, "index_entries": 10_000, **axes}, [RATE] * 3)], steps=100, warmup_steps=25).assign(
            **sizes
        )
        for axes, sizes in cells
    ]
    return pd.concat(frames, ignore_index=True)


def by_index(trials: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """What growth found, by kind of index and start method."""
    rows = [{str(name): value for name, value in row.items()} for row in growth(trials).to_dict("records")]
    return {(row["index_kind"], row["start_method"]): row for row in rows}


def test_growth_is_scaled_to_an_epoch(indexed: pd.DataFrame) -> None:
    """Growth ÷ (warm-up and window) samples × entries; for forked workers only, from the blocks that have a start."""
    found = by_index(indexed)
    forked = found["list", "fork"]
    mean, half = t_interval([40, 50])
    assert [forked[f"grew_bytes{end}"] / MIB for end in ("", "_lo", "_hi")] == pytest.approx(
        [mean, mean - half, mean + half]
    )
    assert forked["samples"] == 125 * 8
    assert forked["epoch_bytes"] == pytest.approx(45 * MIB * 10_000 / 1000)
    assert (forked["n"], forked["end_bytes"]) == (3, 65 * MIB)
    spawned = found["list", "spawn"]
    assert spawned["grew_bytes"] == -100 * MIB
    assert np.isnan(spawned["epoch_bytes"])


def test_an_index_is_as_large_as_what_is_shared_beyond_the_leanest(indexed: pd.DataFrame) -> None:
    """Proportional memory of all less the workers' own, against the leanest of the same start method."""
    found = {key: row["index_bytes"] for key, row in by_index(indexed).items()}
    assert found.pop(("list", "fork")) == pytest.approx((340 - 270) * MIB)
    assert len(found) == 2
    assert np.isnan(list(found.values())).all()


def test_shared_memory_stands_against_its_limit() -> None:
    """Most first: median and most over trials, what may lie ready, and the share of the limit; processes only."""
    columns = {"shm_bytes": [1000, 3000, 8000], "batch_bytes": [100] * 3}
    trials = measured(
        ({"prefetch_factor": 4}, columns),
        ({}, {**columns, "shm_bytes": [9000] * 3}),
        ({"num_workers": 0}, columns),
        ({"loader": "threads"}, columns),
    )
    found = shared_memory(trials, 16_000)
    assert found["shm_most_bytes"].tolist() == [9000, 8000]
    assert found["shm_bytes"].tolist() == [9000, 3000]
    assert found["ahead_bytes"].tolist() == [2 * 2 * 100, 2 * 4 * 100]
    assert found["shm_share"].tolist() == [9 / 16, 0.5]
    assert shared_memory(trials)["shm_share"].isna().all()


@pytest.mark.parametrize("cost", [terminations, startup, respawn, growth, shared_memory])
def test_nothing_is_said_of_what_was_not_measured(cost: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Without trials, with failures only, and with columns that are null, there is no row and no error."""
    some = make_trials([({**LOADS, "index_kind": "list"}, [RATE, RATE])])
    for trials in (
        some.iloc[:0],
        make_trials([(LOADS, [None, None])]),
        some,
        make_trials([({"mode": "compute"}, [RATE])]),
    ):
        assert len(cost(trials)) == 0
