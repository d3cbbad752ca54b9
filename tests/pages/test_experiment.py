"""The source's experiment beside ours: its contradictions shown, our ratios those of the records."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from harness import suite
from harness.analysis import experiment as analysed
from harness.pages import experiment, verdicts
from harness.pages.gathered import Shown

Show = Callable[..., Shown]
BATCHES = (8, 16, 32, 64, 128)


def page(*runs: Shown) -> str:
    return experiment.page(runs, verdicts.gather(runs)).body


def plain(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def log_rates(trials: pd.DataFrame, **cell: object) -> pd.Series:
    """Mean log throughput by block of the cells with some values."""
    chosen = trials[trials["outcome"].eq("ok")]
    for name, value in cell.items():
        chosen = chosen[chosen[name].eq(value).fillna(False)]
    assert chosen["cell_id"].nunique() == 1
    return np.log(chosen["samples_per_s"].astype(float)).groupby(chosen["block"]).mean()


def test_epoch_times_are_throughputs_turned_over(show: Show) -> None:
    """A ratio is the mean of paired log ratios by block, with batches of 8 on top; its ends keep their order."""
    trials = show(batches=BATCHES, fails="none").trials
    found = analysed.epochs(analysed.compared(trials))
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


def test_either_value_may_be_the_first_of_a_contrast() -> None:
    """LMDB against PNG is the same number whichever of them the table of contrasts divides by."""
    row = dict.fromkeys(analysed.COLUMNS) | {"axis": "storage_format", "ratio": 4.0, "lo": 3.2, "hi": 5.0}
    forth = pd.DataFrame([row | {"a_value": "png", "b_value": "lmdb", "n": 6}])
    back = pd.DataFrame([row | {"a_value": "lmdb", "b_value": "png", "ratio": 0.25, "lo": 0.2, "hi": 0.3125, "n": 6}])
    for found in (forth, back):
        (turned,) = analysed.turned(found, "storage_format", "png", "lmdb").to_dict("records")
        assert (turned["ratio"], turned["lo"], turned["hi"], turned["n"]) == (4.0, 3.2, 5.0, 6)
        assert turned["storage_format"] == "lmdb"


def test_what_the_source_contradicts_stands_side_by_side(show: Show) -> None:
    """Its tables and its text give different minutes for the same epochs; both are shown."""
    text = plain(page(show(batches=BATCHES)))
    assert "8 16 min 20 min 1.00 33 %" in text
    assert "128 3 min 4 min 0.188 84 %" in text


def test_every_ratio_has_its_interval_and_its_blocks(show: Show) -> None:
    """Cells of the tables read ratio, interval; the last column counts blocks; the run and its command are named."""
    shown = show(batches=BATCHES, fails="none")
    body = page(shown)
    table = body[body.index("How long an epoch takes") :].split("</table>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in re.findall(r"<tr[^>]*>(.*?)</tr>", table)][1:]
    assert rows
    for row in rows:
        *_, n = (plain(cell) for cell in row)
        assert re.fullmatch(r"\d+( to \d+)?", n)
        assert all(re.fullmatch(r"[\d.]+ \([\d.]+–[\d.]+\)|–", plain(cell)) for cell in row[2:-1]), row
    assert shown.manifest.run_id in body
    assert "Pinned memory needs a CUDA device" in body


def test_pinning_is_compared_where_there_is_a_gpu(show: Show) -> None:
    """A run on CUDA has the table that the source has on pinned memory, if it varied it."""
    body = page(show(device="cuda", run_id="20260103T030405Z-gpu"))
    assert ("Pinned memory against pageable" in body) != ("Pinned memory needs a CUDA device" in body)


def test_sentences_of_the_source_come_with_their_verdicts(show: Show) -> None:
    """They are counted, and each leads to its claim; without a run it is said what to type."""
    text = page(show(claims=("storage",), suites=("storage",)))
    assert "claims.html#claim-lmdb-over-png" in text
    assert re.search(
        r"Of the \d+ sentences that feedrate tests of this source, \d+ have been tested on 1 machine", text
    )
    assert "No run here has tested" in page()
    assert "make sweep PROFILE=reference" in page()


def test_the_source_s_figures_are_those_that_its_claims_quote() -> None:
    """The page's tables and the sentences beside the claims give the same numbers."""
    asked = suite.claims()
    minutes, utilization = (asked[name][1].figures for name in ("batch-size-epoch", "batch-size-utilization"))
    assert ", ".join(f"{each:g}" for each in experiment.MINUTES.values()) in minutes
    assert " and ".join(f"{each:g}" for each in experiment.SPOKEN_MINUTES.values()) in minutes
    assert ", ".join(map(str, experiment.UTILIZATION.values())) in utilization
