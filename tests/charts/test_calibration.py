"""The chart and the terminal table of a calibration run: what the records say, and nothing else."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from feedrate.charts import render
from feedrate.plan import cells as expanding
from feedrate.plan import matrix, schedule
from feedrate.questions.calibration import terminal
from feedrate.questions.calibration.analysis import planted
from feedrate.questions.calibration.charts import PANELS, calibration
from feedrate.schema import plugins
from feedrate.schema.columns import TRIALS

BLOCKS = 4
NOISE = (0.0, 0.004, -0.003, 0.001)
"""By which a trial's wall clock varies, block by block."""


def trial(cell: Mapping[str, Any], cell_id: str, block: int, *, off: float, slow: float) -> dict[str, Any]:
    """What a trial records whose plants are as long as they should be, times 1 + ``off``."""
    batch, workers = int(cell["batch_size"]), int(cell.get("num_workers", 0))
    parts = {
        "read": batch * (3 + (1 + off) * int(cell.get("read_us", 0))),
        "decode": batch * (2 + (1 + off) * int(cell.get("decode_us", 0))),
        "transform": batch * 20.0,
        "collate": 40 + (1 + off) * int(cell.get("collate_us", 0)),
    }
    step = 1e3 * (1 + off) * float(cell.get("step_ms", 0.0))
    loading = sum(parts.values())
    wall = (max(loading / workers, step) if workers else loading + step) * (1 + NOISE[block % 4]) * slow
    return {
        **cell,
        "run_id": "run",
        "cell_id": cell_id,
        "machine_id": "machine",
        "suite": "calibration",
        "device": "cpu",
        "block": block,
        "outcome": "ok",
        "steps": 100,
        "samples": 100 * batch,
        "wall_ns": round(1e5 * wall),
        "samples_per_s": 1e6 * batch / wall,
        "host_forward_ns": round(1e5 * step),
        **{f"worker_{stage}_ns": round(1e5 * us) for stage, us in parts.items()},
    }


def run(folder: Path, *, blocks: int = BLOCKS, off: float = 0.0, slow: float = 1.0) -> pd.DataFrame:
    """A whole run of the suite; the second replica of each cell is slower by a factor."""
    whole = matrix.load(plugins.ROOT / "matrix.yaml", only="calibration")
    cells = expanding.expand(whole, schedule.Host("cpu", folder)).all_cells
    rows = [
        trial(cell.axes, cell.cell_id, block, off=off, slow=slow if cell.axes["replica"] else 1.0)
        for block in range(blocks)
        for cell in cells
    ]
    whole_numbers = {column.name: "Int64" for column in TRIALS if column.dtype == "int64"}
    return pd.DataFrame(rows).reindex(columns=[column.name for column in TRIALS]).astype(whole_numbers)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """A run whose plants are 2 % too long."""
    return run(tmp_path_factory.mktemp("data"), off=0.02)


def printed(frame: pd.DataFrame) -> str:
    sink = io.StringIO()
    terminal.show(frame, Console(file=sink, width=140))
    return " ".join(sink.getvalue().split())


@pytest.mark.slow
def test_every_quantity_has_a_panel(trials: pd.DataFrame) -> None:
    """Each quantity, the effects and the equal cells have a picture, a message with numbers, and rows in the table."""
    figure = calibration.draw(trials)
    shown = [what for what in PANELS if what != "payload"]
    assert [panel.title for panel in figure.panels] == [PANELS[what] for what in shown]
    assert {row["what"] for row in figure.rows} == set(shown)
    for panel in figure.panels:
        assert any(character.isdigit() for character in panel.message)
        assert ET.fromstring(render.svg(panel, "p")).get("width") == "320"


def test_the_chart_shows_what_analysis_says(trials: pd.DataFrame) -> None:
    """Every cost is in the table with its error; drawn are all but the replicas, each setting once a panel."""
    figure = calibration.draw(trials)
    costs = [row for row in figure.rows if row["what"] not in ("effect", "equal")]
    found = planted(trials)
    assert len(costs) == len(found)
    assert sorted(row["error (%)"] for row in costs) == pytest.approx(sorted(found["error_pct"]))
    assert all(row["error (%)"] == pytest.approx(2, abs=0.5) for row in costs)
    for panel in figure.panels:
        for rows in panel.chart.to_dict()["datasets"].values():
            settings = [row["setting"] for row in rows if "setting" in row]
            assert len(settings) == len(set(settings))


@pytest.mark.slow
def test_the_worst_error_is_said(trials: pd.DataFrame) -> None:
    """The cell that is off by most is named with its error in its panel's message, and the error in the terminal."""
    wrong = (trials["read_us"].eq(2000) & trials["collate_us"].eq(20_000) & trials["num_workers"].eq(1)).to_numpy(bool)
    frame = trials.copy()
    frame.loc[wrong, "worker_read_ns"] += frame.loc[wrong, "worker_read_ns"] // 2
    figure = calibration.draw(frame)
    (message,) = [panel.message for panel in figure.panels if panel.title == PANELS["read"]]
    assert "w1 b8 r2 d2 c20" in message
    assert "+53.1" in message
    assert "worst +53.08 %" in printed(frame)


@pytest.mark.slow
def test_a_run_that_plants_nothing_says_so(trials: pd.DataFrame) -> None:
    """Where nothing was planted, or nothing ended well, there is a sentence instead of axes, and no table."""
    plain = trials[trials["mode"].eq("load") & trials["read_us"].eq(0) & trials["decode_us"].eq(0)]
    plain = plain[plain["payload_bytes"].eq(0) & plain["replica"].eq(0)]
    for frame in (plain, trials.assign(outcome="error"), trials.iloc[:0]):
        figure = calibration.draw(frame)
        assert not figure.panels
        assert figure.missing.endswith(".")
        assert printed(frame) == ""
