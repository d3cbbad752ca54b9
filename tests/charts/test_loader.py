"""The charts of the loader: what is drawn is what was recorded, and what the analysis makes of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from cross_fit import cross_fit
from scipy import stats

from feedrate.pages.runs import RunView, draw
from feedrate.questions.loader.phase_charts import defaults
from feedrate.schema.axes import BY_NAME
from feedrate.schema.columns import PHASES

Show = Callable[..., RunView]


@pytest.fixture(scope="module")
def cpu(show: Show) -> RunView:
    return show()


def test_a_mark_is_what_was_recorded(cpu: RunView) -> None:
    """Throughput is the geometric mean over blocks with Student's t; recomputed here."""
    (row,) = (
        row
        for row in draw("throughput", cpu).rows
        if "emulated" in row["what ran"] and (row["batch_size"], row["num_workers"]) == (128, 2)
    )
    trials = cpu.trials
    cell = trials[
        trials["step"].eq("emulated")
        & trials["batch_size"].eq(128)
        & trials["num_workers"].eq(2)
        & trials["storage_format"].eq("png")
        & trials["outcome"].eq("ok")
    ]
    values = np.log(cell["samples"] / cell["wall_ns"] * 1e9).to_numpy(float)
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    wanted = [values.mean() + shift for shift in (0, -half, half)]
    assert row["n"] == len(values)
    assert [row["samples per s"], row["low"], row["high"]] == pytest.approx(np.exp(wanted), rel=1e-6)


def test_phases_add_up_to_the_time_of_a_sample(cpu: RunView) -> None:
    """The segments of a bar sum to its length, and its length is one over the throughput."""
    for row in draw("phases", cpu).rows:
        parts = [row.get(f"{phase} (us)") for phase in (*PHASES, "emulated")]
        assert sum(part for part in parts if part is not None) == pytest.approx(row["total (us)"], rel=1e-3)
        assert row["low (us)"] <= row["total (us)"] <= row["high (us)"]


def rates(frame: pd.DataFrame, batch: int) -> pd.DataFrame:
    """Log throughput by block of every emulated cell of a batch size, a column a cell."""
    mine = frame[frame["step"].eq("emulated") & frame["batch_size"].eq(batch) & frame["outcome"].eq("ok")]
    logs = np.log(mine["samples_per_s"].astype(float)).groupby([mine["block"], mine["cell_id"]]).mean()
    found: pd.DataFrame = logs.unstack()
    return found


@pytest.mark.slow
def test_best_and_default_are_what_the_records_say(show: Show) -> None:
    """The best bar is the fastest cell of its batch, the ratio is cross-fitted; both recomputed from the rows."""
    frame = show(fails="none").trials
    figure = defaults.draw(frame)
    rows = {(row["which"], row["batch_size"]): row for row in figure.rows if "emulated" in row["what ran"]}
    png = frame["storage_format"].eq(BY_NAME["storage_format"].default)
    plain = frame["step"].eq("emulated") & frame["num_workers"].eq(0) & png
    for batch in (8, 32, 128):
        logs = rates(frame, batch)
        best, default = logs.mean().idxmax(), frame[plain & frame["batch_size"].eq(batch)]["cell_id"].iloc[0]
        mine, row = frame[frame["cell_id"].eq(best)].iloc[0], rows["best", batch]
        assert row["setting"].startswith(f"{mine['storage_format']}, {mine['num_workers']} worker")
        assert row["total (us)"] == pytest.approx(1e6 / np.exp(logs[best].mean()), rel=1e-6)
        gain, half, _ = cross_fit(logs.sub(logs[default], axis=0))
        assert row["times the defaults"] == pytest.approx(np.exp(gain), rel=1e-6)
        assert row["times, low"] == pytest.approx(np.exp(gain - half), rel=1e-6)
        assert row["times, high"] == pytest.approx(np.exp(gain + half), rel=1e-6)
        assert rows["defaults", batch]["times the defaults"] is None


@pytest.mark.slow
def test_the_message_names_both_and_the_gain(show: Show) -> None:
    """The text alternative says what waiting takes with either, the best setting, and its gain with interval and n."""
    figure = defaults.draw(show(fails="none").trials)
    panel = next(panel for panel in figure.panels if "emulated" in panel.subtitle)
    assert panel is figure.panels[0] or "real" in figure.panels[0].subtitle
    assert "With PyTorch’s defaults on png files, waiting for data takes" in panel.message
    assert "With the best settings, waiting for data takes" in panel.message
    assert re.search(r"is [\d.]+× \([\d.]+–[\d.]+, n = 6\) as fast as the defaults\.", panel.message)
    few = defaults.draw(show(blocks=3, fails="none").trials)
    assert any("A gain at batch 128 takes 4 repetitions" in panel.message for panel in few.panels)
