"""The first numbers a reader sees: they must be the ones that matter, and the records'."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest

from harness import records
from harness.analysis.summary import default_vs_best
from harness.axes import AXES, applicable, cell_id
from harness.pages.headlines import answer, gain_words, headlines

RATES = {("png", 0): 1000.0, ("png", 2): 1900.0, ("lmdb", 0): 5000.0, ("lmdb", 2): 4000.0}


def trials(rates: dict[tuple[str, int], float], blocks: int = 6) -> pd.DataFrame:
    """A loader alone whose cells have the given rates, with half a per cent of spread."""
    rows = []
    for block, (name, workers) in itertools.product(range(blocks), rates):
        full = {axis.name: axis.default for axis in AXES}
        cell, _ = applicable(full | {"mode": "load", "storage_format": name, "num_workers": workers}, "cpu")
        rate = rates[name, workers] * (1 + 0.005 * ((block * 7 + workers) % 3 - 1))
        rows.append(
            {
                "run_id": "r",
                "cell_id": cell_id(cell),
                "machine_id": "m",
                "suite": "loader",
                "device": "cpu",
                "block": block,
                "outcome": "ok",
                "samples_per_s": rate,
                "wall_ns": 10**9,
                **cell,
            }
        )
    frame = pd.DataFrame(rows)
    types = {"string": "string", "int64": "Int64", "float64": "Float64", "bool": "boolean"}
    return pd.DataFrame(
        {c.name: frame.get(c.name, pd.Series(pd.NA, frame.index)).astype(types[c.dtype]) for c in records.TRIALS}
    )


def test_the_largest_gain_is_told_although_the_best_cell_needs_none() -> None:
    """The fastest cell is a default; that workers nearly double another format must not be lost over it."""
    frame = trials(RATES)
    (row,) = headlines(frame).to_dict("records")
    assert (row["storage_format"], row["num_workers"]) == ("lmdb", 0)
    assert (row["gain"]["storage_format"], row["gain"]["num_workers"]) == ("png", 2)
    known = default_vs_best(frame).set_index("storage_format").loc["png"]
    assert row["gain"]["ratio"] == known["ratio"] == pytest.approx(1.9, rel=0.01)
    ratio, where = gain_words(row["gain"])
    assert ratio.startswith("× 1.90 (1.")
    assert where == "png, batch 32: 2 workers"
    assert "2 workers feed 1.90 times as many samples" in answer(headlines(frame))


def test_no_gain_is_said() -> None:
    """Where the defaults are best the page says so, and claims nothing."""
    frame = trials({("png", 0): 1000.0, ("png", 2): 900.0})
    (row,) = headlines(frame).to_dict("records")
    assert gain_words(row["gain"]) == ("none that is clear", "")
    assert "no loader setting is clearly faster" in answer(headlines(frame))


def test_one_block_claims_nothing() -> None:
    """One block has no interval: no gain is printed from it."""
    (row,) = headlines(trials(RATES, blocks=1)).to_dict("records")
    assert gain_words(row["gain"]) == ("one block: not known", "")
    assert "says nothing about its spread" in answer(headlines(trials(RATES, blocks=1)))


def test_no_default_is_not_measured() -> None:
    """Without a default cell there is nothing to compare with, and that is said."""
    (row,) = headlines(trials({("png", 2): 900.0})).to_dict("records")
    assert gain_words(row["gain"]) == ("not measured", "")
    assert answer(headlines(trials({("png", 2): 900.0}))) == ""


def test_whole_numbers_are_written_as_such() -> None:
    """A knob that some rows lack stays a whole number: prefetch_factor 4, not 4.0."""
    frame = trials(RATES)
    workers = frame["num_workers"].eq(2)
    frame.loc[workers, "prefetch_factor"] = 4
    (row,) = headlines(frame).to_dict("records")
    assert gain_words(row["gain"])[1] == "png, batch 32: 2 workers, prefetch_factor 4"
