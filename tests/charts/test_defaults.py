"""The opening figure: PyTorch's defaults against the best settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.charts.figure import Figure
from feedrate.questions.loader.charts import defaults
from feedrate.schema.axes import BY_NAME

Trials = Callable[..., pd.DataFrame]


def emulated(figure: Figure) -> dict[str, Any]:
    """Rows of the panel with an emulated step, by bar."""
    return {row["which"] + str(row["batch_size"]): row for row in figure.rows if "emulated" in row["what ran"]}


def rates(frame: pd.DataFrame, batch: int) -> pd.DataFrame:
    """Log throughput by block of every emulated cell of a batch size, a column a cell."""
    mine = frame[frame["step"].eq("emulated") & frame["batch_size"].eq(batch) & frame["outcome"].eq("ok")]
    logs = np.log(mine["samples_per_s"].astype(float)).groupby([mine["block"], mine["cell_id"]]).mean()
    found: pd.DataFrame = logs.unstack()
    return found


def test_best_and_default_are_what_the_records_say(trials: Trials) -> None:
    """The best bar is the fastest cell of its batch, the ratio is paired by block; both recomputed from the rows."""
    frame = trials(fails="none")
    figure = defaults.draw(frame)
    rows = emulated(figure)
    for batch in (8, 32, 128):
        logs = rates(frame, batch)
        best = logs.mean().idxmax()
        mine = frame[frame["cell_id"].eq(best)].iloc[0]
        row = rows[f"best{batch}"]
        assert row["setting"].startswith(f"{mine['storage_format']}, {mine['num_workers']} worker")
        assert row["total (us)"] == pytest.approx(1e6 / np.exp(logs[best].mean()), rel=1e-6)
        default = frame[
            frame["step"].eq("emulated")
            & frame["batch_size"].eq(batch)
            & frame["num_workers"].eq(0)
            & frame["storage_format"].eq(BY_NAME["storage_format"].default)
        ]["cell_id"].iloc[0]
        assert row["times the defaults"] == pytest.approx(np.exp((logs[best] - logs[default]).mean()), rel=1e-6)
        assert row["times, low"] < row["times the defaults"] < row["times, high"]
        assert rows[f"defaults{batch}"]["times the defaults"] is None


def test_the_message_names_both_and_the_gain(trials: Trials) -> None:
    """The text alternative says what waiting takes with either, the best setting, and its gain with interval and n."""
    figure = defaults.draw(trials(fails="none"))
    panel = next(panel for panel in figure.panels if "emulated" in panel.subtitle)
    assert panel is figure.panels[0] or "real" in figure.panels[0].subtitle
    assert "With PyTorch’s defaults on png files, waiting for data takes" in panel.message
    assert "With the best settings, waiting for data takes" in panel.message
    assert "times as many samples (95\u00a0% interval" in panel.message
    assert "n = 6" in panel.message


def test_nothing_faster_than_the_defaults_is_said(trials: Trials) -> None:
    """Where only the defaults were measured, one bar stands alone and the message claims no gain."""
    frame = trials(fails="none")
    alone = frame[frame["num_workers"].eq(0).fillna(False) & frame["storage_format"].eq("png").fillna(False)]
    figure = defaults.draw(alone[alone["pin_memory"].fillna(False).eq(False)])
    assert figure.panels
    assert {row["which"] for row in figure.rows} == {"defaults"}
    assert all("nothing else that was measured here is faster" in panel.message.lower() for panel in figure.panels)


def test_one_block_gives_no_interval(trials: Trials) -> None:
    """With one block the gain has no interval, and says so."""
    figure = defaults.draw(trials(blocks=1, fails="none"))
    assert "n = 1: no interval" in figure.panels[0].message
    assert all(row["times, low"] is None for row in figure.rows)


def test_all_failed_is_a_sentence(trials: Trials) -> None:
    """Without a trial that ended well there is no picture."""
    figure = defaults.draw(trials(fails="all"))
    assert not figure.panels
    assert figure.missing
