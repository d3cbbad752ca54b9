"""Five sentences, every number of which stands in the records."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from harness import store
from harness.pages import home, verdicts, what_we_found
from harness.pages.gathered import Shown
from harness.registry import ROOT

Show = Callable[..., Shown]
RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def committed() -> list[what_we_found.Sentence]:
    runs = [Shown(run) for run in reversed(store.runs(RESULTS))]
    return what_we_found.sentences(home.leading(runs), verdicts.gather(runs), store.benches(RESULTS))


def trials_of(sentence: what_we_found.Sentence) -> pd.DataFrame:
    (run,) = [run for run in store.runs(RESULTS) if run.manifest.run_id == sentence.source.removeprefix("run ")]
    return run.table("trials")


def logs(trials: pd.DataFrame, **cell: object) -> pd.Series:
    """Mean log throughput by block of the cell that has some values and else the defaults of the loader."""
    wanted = {"prefetch_factor": 2, "access": "random", "page_cache": "warm", "collate": "totensor"}
    wanted |= {"readahead": True, "worker_kind": "process", "cache": "none"} | cell
    chosen = trials[trials["outcome"].eq("ok")]
    for name, value in wanted.items():
        if name in chosen:
            chosen = chosen[chosen[name].isna() | chosen[name].eq(value).fillna(False)]
    assert chosen["cell_id"].nunique() == 1, chosen["cell_id"].unique()
    return np.log(chosen["samples_per_s"].astype(float)).groupby(chosen["block"]).mean()


def interval(ratios: pd.Series) -> tuple[float, float, float, int]:
    """Geometric mean with its 95 % Student-t interval, computed apart from the harness."""
    known = ratios.dropna()
    half = stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
    return (*np.exp([known.mean(), known.mean() - half, known.mean() + half]), len(known))


def said(text: str) -> tuple[float, float, float, int]:
    """Ratio, ends and n of a sentence."""
    ratio = re.search(r"([\d.]+) times", text)
    found = re.search(r"interval ([\d.]+) to ([\d.]+), n = (\d+)", text)
    assert ratio
    assert found, text
    return float(ratio[1]), float(found[1]), float(found[2]), int(found[3])


def test_there_are_five(committed: list[what_we_found.Sentence]) -> None:
    """The committed results answer every question, and each sentence names what it was made from."""
    assert len(committed) == 5
    assert all(re.fullmatch(r"(run|record) [\w-]+", each.source) for each in committed)


def test_the_gain_is_that_of_the_run(committed: list[what_we_found.Sentence]) -> None:
    """Best against default settings: recomputed from the trials with nothing of the analysis."""
    first = committed[0]
    settings = re.search(r"(\d+) workers? feed.*; (\w+) at (\d+) px from (\w+), batches of (\d+)", first.text)
    step = re.search(r"emulated step of (\d+) ms", first.text)
    assert settings
    assert step, "the machine of the committed runs has no accelerator"
    trials = trials_of(first)
    cell = {"mode": "train", "step": "emulated", "step_ms": float(step[1]), "workload": settings[2]}
    cell |= {"patch_size": int(settings[3]), "storage_format": settings[4], "batch_size": int(settings[5])}
    best, default = (logs(trials, **cell, num_workers=workers) for workers in (int(settings[1]), 0))
    assert said(first.text) == pytest.approx(interval(best - default), rel=5e-3)


def test_what_lmdb_gains_is_that_of_the_run(committed: list[what_we_found.Sentence]) -> None:
    """Three settings, averaged block by block; recomputed likewise."""
    trials = trials_of(committed[1])
    cell = {"mode": "load", "workload": "div2k_standin", "num_workers": 2}
    large = {"patch_size": 96, "batch_size": 32}
    settings = (large, large | {"page_cache": "cold"}, {"patch_size": 64, "batch_size": 32})
    ratios = [
        logs(trials, **cell, **one, storage_format="lmdb") - logs(trials, **cell, **one, storage_format="png")
        for one in settings
    ]
    assert said(committed[1].text) == pytest.approx(interval(sum(ratios[1:], ratios[0]) / len(ratios)), rel=5e-3)


def test_claims_are_counted(committed: list[what_we_found.Sentence]) -> None:
    """Counts add up to the sentences that were tested, and as many are listed as do not hold."""
    counted = committed[2].text
    whole = re.search(r"Of (\d+) sentences", counted)
    parts = [int(count) for count in re.findall(r"(\d+) (?:hold|do not|make no difference|are open)", counted)]
    assert whole
    assert sum(parts) == int(whole[1])
    refuted = re.search(r"(\d+) do not", counted)
    assert refuted
    assert len(re.findall("“", committed[3].text)) == int(refuted[1])


def test_what_no_record_tells_is_left_out(show: Show) -> None:
    """Without results nothing is said; a run without claims says nothing of them."""
    assert what_we_found.sentences([], verdicts.gather([]), []) == []
    shown = show(fails="none")
    (only,) = what_we_found.sentences([shown], verdicts.gather([]), [])
    assert only.source == f"run {shown.manifest.run_id}"
