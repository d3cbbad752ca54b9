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

from feedrate.analysis.ceilings import cells_with_ceilings
from feedrate.pages.runs import RunView, draw
from feedrate.questions.experiment.analysis import UTILIZATION
from feedrate.questions.experiment.charts import KINDS
from feedrate.questions.loader.phase_charts import defaults
from feedrate.schema.axes import BY_NAME
from feedrate.schema.columns import PHASES

Show = Callable[..., RunView]


@pytest.fixture(scope="module")
def cpu(show: Show) -> RunView:
    return show()


@pytest.mark.parametrize(("name", "value"), [("throughput", "samples per s"), ("utilization", "per cent")])
def test_a_mark_is_what_was_recorded(name: str, value: str, cpu: RunView) -> None:
    """Throughput is the geometric mean over blocks, utilization their mean, each with Student's t; recomputed here."""
    (row,) = (
        row
        for row in draw(name, cpu).rows
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
    logs = name == "throughput"
    values = np.log(cell["samples"] / cell["wall_ns"] * 1e9) if logs else cell["cpu_util_pct"]
    values = values.to_numpy(float)
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    wanted = [values.mean() + shift for shift in (0, -half, half)]
    assert row["n"] == len(values)
    assert [row[value], row["low"], row["high"]] == pytest.approx(np.exp(wanted) if logs else wanted, rel=1e-6)


def test_phases_add_up_to_the_time_of_a_sample(cpu: RunView) -> None:
    """The segments of a bar sum to its length, and its length is one over the throughput."""
    for row in draw("phases", cpu).rows:
        parts = [row.get(f"{phase} (us)") for phase in (*PHASES, "emulated")]
        assert sum(part for part in parts if part is not None) == pytest.approx(row["total (us)"], rel=1e-3)
        assert row["low (us)"] <= row["total (us)"] <= row["high (us)"]


@pytest.mark.slow
@pytest.mark.parametrize(("device", "comparable"), [("cpu", False), ("cuda", True)])
def test_the_source_is_beside_and_never_mixed_up(device: str, comparable: bool, show: Show) -> None:
    """The 2019 figures are shown as published; beside CPU utilization they are said not to be comparable in kind."""
    figure = draw("utilization", show(device=device))
    ours, source = figure.panels[:-1], figure.panels[-1]
    values = {row["batch"]: row["value"] for row in source.chart.to_dict()["datasets"].popitem()[1]}
    assert values == {8: 33, 16: 31, 32: 37, 64: 52, 128: 84} == UTILIZATION
    assert "1080 Ti" in source.title
    assert "1080" not in "".join(panel.title for panel in ours)
    assert ("not comparable in kind" in source.message) is not comparable
    quantity = KINDS["gpu_util_pct" if comparable else "cpu_util_pct"]
    assert all(quantity in panel.message for panel in ours)


def test_the_roofline_shows_what_was_judged(cpu: RunView) -> None:
    """Efficiency and bottleneck of every mark are those of the analysis; the message counts bottlenecks."""
    figure = draw("roofline", cpu)
    cells = cells_with_ceilings(cpu.trials)
    training = cells[cells["mode"].eq("train") & cells["load_ceiling"].gt(0) & cells["samples_per_s"].gt(0)]
    marks = [row for row in figure.rows if row.get("held back by")]
    assert len(marks) == len(training)
    assert sorted(row["efficiency"] for row in marks) == pytest.approx(sorted(training["efficiency"].astype(float)))
    real = [row for row in marks if row["panel"] == "Real training"]
    count = sum(row["held back by"] == "compute-bound" for row in real)
    assert f"{count} are compute-bound" in figure.panels[0].message
    assert all(row["achieved ÷ step"] <= 1.25 * min(1.0, row["feed ÷ step"]) for row in real)


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
    assert re.search(r"feeds [\d.]+× \([\d.]+–[\d.]+, n = 6\) as many samples, cross-fitted\.", panel.message)
    few = defaults.draw(show(blocks=3, fails="none").trials)
    assert any("What the best settings gain at batch 128 needs 4 blocks" in panel.message for panel in few.panels)
