"""The charts of workers: start-up is that of the analysis, and fit the narrowest screen."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest
from made_trials import make_trials

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.loader import startup
from feedrate.charts import render
from feedrate.questions.workers.charts import LOOKS, who, worker_scaling, worker_startup
from feedrate.schema.axes import Value

LOAD: dict[str, Value] = {"mode": "load", "workload": "synthetic", "storage_format": "lmdb", "batch_size": 8}
WAYS: dict[str, dict[str, Value]] = {
    "no workers": {"num_workers": 0},
    "2 workers, fork": {"num_workers": 2},
    "8 workers, fork": {"num_workers": 8},
    "2 workers, spawn": {"num_workers": 2, "start_method": "spawn"},
    "2 workers, forkserver": {"num_workers": 2, "start_method": "forkserver"},
    "2 threads": {"num_workers": 2, "loader": "threads"},
}


def trials(cells: Mapping[str, tuple[Mapping[str, Value], Mapping[str, Any]]], blocks: int = 3) -> pd.DataFrame:
    """Trials of a run: cells with their columns, a little more in every block."""
    frames = []
    for axes, columns in cells.values():
        frame = make_trials([({**LOAD, **axes}, [10.0] * blocks)]).assign(suite="workers")
        for name, value in columns.items():
            frame[name] = (value * (1 + frame["block"] / 100)).round().astype("int64")
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def starting(blocks: int = 3) -> pd.DataFrame:
    return trials({name: (axes, {"startup_ns": 10**7 * 3**at}) for at, (name, axes) in enumerate(WAYS.items())}, blocks)


def test_start_up_is_that_of_the_analysis() -> None:
    """A line for each way to have workers, with the value and the interval that the analysis gives."""
    frame = starting()
    figure = worker_startup.draw(frame)
    found = {who(row): row for row in rows_of(startup(frame))}
    assert {row["workers"] for row in figure.rows} == set(WAYS) == set(found)
    for row in figure.rows:
        ends = [found[row["workers"]][f"startup_ms{end}"] for end in ("", "_lo", "_hi")]
        assert [row["first batch (ms)"], row["low"], row["high"]] == pytest.approx(ends)
    assert {key.label for key in figure.keys} == set(LOOKS)
    texts = {text.text for text in ET.fromstring(render.svg(figure.panels[0], "p")).iter() if text.text}
    assert set(WAYS) <= texts
    assert "synthetic" in figure.panels[0].title
    assert "No workers: 10.1 ms" in figure.message
    assert "2 threads: 2,450 ms" in figure.message
    assert "240× as long" in figure.message


def test_a_tooltip_says_whole_workers() -> None:
    """Though marks of several formats stand a little beside one another."""
    axes = [{"num_workers": count, "storage_format": name} for count in (0, 2) for name in ("lmdb", "png")]
    panel = worker_scaling.draw(trials({str(cell): (cell, {}) for cell in axes})).panels[0]
    points = [layer for layer in panel.chart.to_dict()["layer"] if layer["mark"]["type"] == "point"]
    shown = [tooltip["field"] for layer in points for tooltip in layer["encoding"]["tooltip"]]
    assert shown == ["workers", "line", "value", "lo", "hi", "n"]
