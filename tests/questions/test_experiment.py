"""The source's experiment beside ours: its contradictions shown, our ratios those of the records."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials
from reading import plain

from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import load_verdicts
from feedrate.plan import suite
from feedrate.questions.experiment import analysis as analysed
from feedrate.questions.experiment import page as experiment_page
from feedrate.schema.axes import Value

Show = Callable[..., RunView]
BATCHES = (8, 16, 32, 64, 128)


def page(*runs: RunView) -> str:
    return experiment_page.section(runs, load_verdicts(runs))


def log_rates(trials: pd.DataFrame, **cell: object) -> pd.Series:
    """Mean log throughput by block of the cells with some values."""
    matches = trials["outcome"].eq("ok")
    for name, value in cell.items():
        matches &= trials[name].eq(value).fillna(False)
    chosen = trials[matches]
    assert chosen["cell_id"].nunique() == 1
    return np.log(chosen["samples_per_s"].astype(float)).groupby(chosen["block"]).mean()


@pytest.mark.slow
def test_epoch_times_are_throughputs_turned_over(show: Show) -> None:
    """A ratio of epoch times is the mean of paired log ratios by block, ends in order."""
    trials = show(batches=BATCHES, fails="none").trials
    found = analysed.epochs(analysed.experiment_contrasts(trials))
    own = found[found["mode"].eq("train") & found["step"].eq("real") & found["num_workers"].eq(0)]
    assert len(own)
    assert set(found["batch_size"]) == set(BATCHES[1:])
    for row in own.to_dict("records"):
        fixed = {
            name: row[name]
            for name in ("mode", "step", "num_workers", "storage_format", "patch_size")
            if not pd.isna(row[name])
        }
        small = log_rates(trials, batch_size=8, **fixed)
        large = log_rates(trials, batch_size=row["batch_size"], **fixed)
        assert np.isclose(row["ratio"], np.exp((small - large).mean()))
        assert row["lo"] < row["ratio"] < row["hi"]


@pytest.mark.slow
def test_every_ratio_has_its_interval_and_its_blocks(show: Show) -> None:
    """Ratios have intervals and blocks; the run is named; the source's contradictory minutes stand side by side."""
    view = show(batches=BATCHES, fails="none")
    body = page(view)
    _, *rows = rows_of(body, "How long an epoch takes")
    assert rows
    for *cells, n in rows:
        assert re.fullmatch(r"\d+( to \d+)?", n)
        assert all(re.fullmatch(r"[\d.]+ \([\d.]+–[\d.]+\)|–", cell) for cell in cells[2:]), cells
    assert view.manifest.run_id in body
    assert "Pinned memory needs a CUDA device" in body
    assert "8 16 min 20 min 1.00 33 %" in plain(body)
    assert "128 3 min 4 min 0.188 84 %" in plain(body)


def rows_of(body: str, title: str) -> list[list[str]]:
    """The cells of the rows below a heading, as text."""
    table = body[body.index(title) :].partition("</table>")[0]
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line) for line in re.findall(r"<tr[^>]*>(.*?)</tr>", table)]
    return [[plain(cell) for cell in row] for row in rows]


@pytest.mark.slow
def test_pinning_is_compared_where_there_is_a_gpu(show: Show) -> None:
    """On CUDA the source's table of pinned memory has our ratios, those of the raw trials."""
    view = show(device="cuda", run_id="20260103T030405Z-gpu", fails="none")
    body = page(view)
    (_, _, *batches, _), *rows = rows_of(body, ">Pinned memory against pageable")
    assert batches == [f"batch {batch}" for batch in (8, 32, 128)]
    training = [row for row in rows if row[0] == "real training"]
    assert {row[1] for row in training} == {
        f"div2k_standin, 16 px, {name}, {workers} workers" for name in ("png", "lmdb") for workers in (0, 2)
    }
    for _, setting, *ratios, n in training:
        workload, _, name, workers = setting.split(", ")
        given = {"mode": "train", "workload": workload, "storage_format": name, "num_workers": int(workers[0])}
        for batch, told in zip((8, 32, 128), ratios, strict=True):
            cell = {**given, "batch_size": batch, "non_blocking": False}
            logs = [log_rates(view.trials, **cell, pin_memory=pinned) for pinned in (True, False)]
            assert told.startswith(f"{np.exp((logs[0] - logs[1]).mean()):.2f} (")
        assert n == str(view.manifest.blocks)
    assert "Pinned memory needs" not in body
    assert "no ratio of pinned to pageable" not in body


@pytest.mark.slow
def test_verdicts_on_sentences_of_the_source_are_counted(show: Show) -> None:
    """All of them, by platform; without a run it is said what to type."""
    text = page(view := show(claims=("storage",), suites=("storage",)))
    tested, asked = map(int, re.findall(r"(\d+) of this source’s (\d+) sentences are tested", text)[0])
    (ends,) = re.findall(rf"{view.name}: (.*?)\.", text)
    assert 0 < tested < asked == sum(map(int, re.findall(r"\d+", ends)))
    assert "No run here has tested" in page()
    assert "make sweep PROFILE=reference" in page()


def test_the_source_s_figures_are_those_that_its_claims_quote() -> None:
    """The page's tables and the sentences beside the claims give the same numbers."""
    asked = suite.claims()
    minutes, utilization = (asked[name][1].figures for name in ("batch-size-epoch", "batch-size-utilization"))
    assert ", ".join(f"{each:g}" for each in analysed.MINUTES.values()) in minutes
    assert " and ".join(f"{each:g}" for each in analysed.SPOKEN_MINUTES.values()) in minutes
    assert ", ".join(map(str, analysed.UTILIZATION.values())) in utilization


Cell = Mapping[str, Value]
TRAINED: dict[str, Any] = {"mode": "train", "workload": "div2k", "batch_size": 128, "num_workers": 8}


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
def test_what_is_not_the_experiment_s_stays_at_its_default(other: Cell) -> None:
    """Pinning doubles throughput at the defaults and makes it five times elsewhere: two is what the ratio says."""
    pinned = {**TRAINED, "pin_memory": True}
    cells = [(TRAINED, 100.0), (pinned, 200.0), ({**TRAINED, **other}, 100.0), ({**pinned, **other}, 500.0)]
    found = analysed.experiment_contrasts(make_trials([(cell, [rate] * 4) for cell, rate in cells], device="cuda"))
    assert set(found["axis"]) == {"pin_memory"}
    ((setting, of_batch),) = analysed.by_batch(
        analysed.ratios_between(found, "pin_memory", a=False, b=True), "pin_memory"
    )
    assert setting["workload"] == "div2k"
    assert [row["ratio"] for row in of_batch.values()] == pytest.approx([2.0])
