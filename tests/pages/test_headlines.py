"""The first numbers a reader sees: they must be the ones that matter, and the records'."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials

from feedrate.analysis import sentences
from feedrate.analysis.estimate import RATE
from feedrate.analysis.estimates import cells
from feedrate.analysis.summary import most_gained
from feedrate.charts.figure import slices
from feedrate.pages.headlines import headline_table, task_cell
from feedrate.pages.tasks import answer, gain_settings, gain_words, headlines, set_words, what_ran
from feedrate.schema.axes import EMULATED_STEPS, Value
from feedrate.schema.columns import TRIALS

RATES = {("png", 0): 1000.0, ("png", 2): 1900.0, ("lmdb", 0): 5000.0, ("lmdb", 2): 4000.0}


def trials(rates: dict[tuple[str, int], float], blocks: int = 6, device: str = "cpu", **more: Value) -> pd.DataFrame:
    """A loader alone, or what more says, whose cells have the given rates, with half a per cent of spread."""
    settings = []
    for (name, workers), rate in rates.items():
        axes = {"mode": "load", "storage_format": name, "num_workers": workers} | more
        settings.append((axes, [rate * (1 + 0.005 * ((block * 7 + workers) % 3 - 1)) for block in range(blocks)]))
    types = {"string": "string", "int64": "Int64", "float64": "Float64", "bool": "boolean"}
    return make_trials(settings, device=device).astype({column.name: types[column.dtype] for column in TRIALS})


@pytest.mark.slow
def test_the_largest_gain_is_told_although_the_best_cell_needs_none() -> None:
    """The fastest cell is a default; that workers nearly double another format must not be lost over it."""
    frame = trials(RATES)
    (row,) = headlines(frame).to_dict("records")
    assert (row["storage_format"], row["num_workers"]) == ("lmdb", 0)
    assert (row["gain"]["storage_format"], row["gain"]["num_workers"]) == ("png", 2)
    (known,) = most_gained(frame).to_dict("records")
    assert row["gain"]["ratio"] == known["ratio"] == pytest.approx(1.9, rel=0.01)
    ratio, where = gain_words(row["gain"])
    assert re.fullmatch(r"1\.90× \(1\.\d\d–1\.\d\d, n\u00a0=\u00a06\)", ratio)
    assert where == "png, batch 32: 2 workers"
    assert f"2 workers give {ratio.partition(', n')[0]}) the default speed" in answer(headlines(frame))


def equal(settings: int, blocks: int = 8) -> pd.DataFrame:
    """Worker counts that make no difference, with 3 % of noise a trial."""
    frame = trials({("png", count): 1000.0 for count in range(settings)}, blocks)
    random = np.random.default_rng(3)
    return frame.assign(samples_per_s=1000 * np.exp(0.03 * random.standard_normal(len(frame))))


@pytest.mark.slow
def test_one_setting_has_one_speed() -> None:
    """What stands beside the best setting is its own estimate, as wherever else the setting stands."""
    frame = equal(20)
    (row,) = headlines(frame).to_dict("records")
    own = cells(frame).set_index("cell_id").loc[row["cell_id"]]
    assert [row[name] for name in RATE] == [own[name] for name in RATE]
    assert set_words(row) in headline_table(headlines(frame))


@pytest.mark.slow
def test_settings_that_cannot_be_told_from_the_best_are_counted() -> None:
    """Of how many, and which of them is the cheapest: the best itself or another, by name."""
    (row,) = headlines(equal(20)).to_dict("records")
    many = f"ties with {row['members'] - 1} of 19 others"
    assert set_words(row) == f"{many}; the cheapest is png, batch 32, 0 workers"
    assert row["members"] > 10
    (cheapest,) = headlines(trials({("png", 0): 1000.0, ("png", 2): 999.0})).to_dict("records")
    assert set_words(cheapest) == "ties with 1 of 1 other, and the cheapest of them"
    (clear,) = headlines(trials(RATES)).to_dict("records")
    assert set_words(clear) == "clearly the best of 4"
    (alone,) = headlines(trials({("png", 0): 1000.0}, blocks=1)).to_dict("records")
    assert set_words(alone) == ""


@pytest.mark.slow
def test_every_knob_that_differs_is_named() -> None:
    """A gain may come from any knob, readahead and the decoder among them: what is told is all that was changed."""
    frame = trials({("lmdb", 0): 1000.0, ("lmdb", 1): 1900.0})
    better = frame["num_workers"].eq(1)
    frame.loc[better, "readahead"] = False
    frame.loc[better, "normalize_on"] = "device"
    (row,) = headlines(frame).to_dict("records")
    assert gain_settings(row["gain"]) == "1 worker, readahead false, normalize_on device"
    assert gain_words(row["gain"])[1] == "lmdb, batch 32: 1 worker, readahead false, normalize_on device"
    assert "1 worker, readahead false, normalize_on device give 1.90× (" in answer(headlines(frame))


@pytest.mark.slow
@pytest.mark.parametrize("timing", ["serialized", "off"])
def test_a_cross_check_is_no_task(timing: str) -> None:
    """Another ``timing`` than events is never mixed in: it makes no row, not even where nothing else was measured."""
    rates = {("png", 0): 1000.0, ("png", 2): 1900.0}
    events = trials(rates, device="cuda", mode="train")
    check = trials({("png", 2): 3000.0}, device="cuda", mode="train", timing=timing)
    (row,) = headlines(pd.concat([events, check], ignore_index=True)).to_dict("records")
    assert row["samples_per_s"] == pytest.approx(1900, rel=0.01)
    assert not len(headlines(check))


@pytest.mark.slow
@pytest.mark.parametrize("step", EMULATED_STEPS)
def test_a_step_that_computes_nothing_is_no_training(step: str) -> None:
    """Whether the host sleeps or the device spins, it is told as an emulated step, wherever a task is named."""
    frame = trials({("png", 2): 3000.0}, device="cuda", mode="train", step=step)
    (row,) = headlines(frame).to_dict("records")
    assert row["kind"] == "emulated"
    assert what_ran(row).startswith("emulated step, 10 ms a step")
    assert sentences._kind({"mode": "train", "step": step, "step_ms": 10.0}) == "Before an emulated step of 10 ms"
    (panel,) = slices(cells(frame), ("train", "emulated"))
    assert (panel.kind, panel.subtitle.split(":")[0]) == ("emulated", "emulated step")


@pytest.mark.slow
@pytest.mark.parametrize("state", ["cold", "full"])
def test_unusual_conditions_are_named(state: str) -> None:
    """Two tasks that differ in a condition without words of its own are told apart by its name and value."""
    frame = pd.concat([trials(RATES), trials(RATES, n_samples=4096, page_cache=state)], ignore_index=True)
    plain, unusual = headlines(frame).to_dict("records")
    assert ">loading alone</span>" in task_cell(plain)
    assert f">loading alone, {state} page cache, n_samples 4096</span>" in task_cell(unusual)
    assert f"Loading alone on synthetic at 64 px, {state} page cache, n_samples 4096: " in answer(headlines(frame)[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "blocks", "gain", "told"),
    [
        (
            {("png", 0): 1000.0, ("png", 2): 900.0},
            6,
            "none that is clear",
            "no loader setting is clearly faster than PyTorch’s default.",
        ),
        (RATES, 3, "needs 4 repetitions", "Loading alone on synthetic at 64 px: a gain needs 4 repetitions."),
        ({("png", 2): 900.0}, 6, "not measured", ""),
    ],
)
def test_no_gain_is_said(rates: dict[tuple[str, int], float], blocks: int, gain: str, told: str) -> None:
    """Where defaults are best, blocks are too few, or no default ran, it is said, and nothing is claimed."""
    found = headlines(trials(rates, blocks))
    assert gain_words(found["gain"].iloc[0]) == (gain, "")
    assert told in answer(found)
    assert told or answer(found) == ""
