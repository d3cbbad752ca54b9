"""The timeline: its table is exactly its bars, its words are their sums, and it says what it does not know."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis import steps as analysis_steps
from feedrate.charts import render
from feedrate.charts.embed import figure_csv
from feedrate.charts.figure import Figure
from feedrate.charts.theme import STAGE_COLOURS
from feedrate.questions.runs.timeline_charts import PARTS
from feedrate.questions.runs.timeline_charts import timeline as chart
from feedrate.schema.axes import AXES, Value, applicable, cell_id
from feedrate.schema.columns import STEPS, TRIALS, WORKER_STAGES

MS = 1_000_000
COUNT = 40
COMMON: dict[str, Value] = {"workload": "synthetic", "storage_format": "png", "batch_size": 32}
KINDS: dict[str, dict[str, Value]] = {
    "real": {"mode": "train"},
    "emulated": {"mode": "train", "step": "emulated", "step_ms": 12.0},
    "load": {"mode": "load"},
}


def steps(
    kinds: tuple[str, ...] = ("real", "emulated"), *, device: str = "cpu", stamped: bool = True, **more: Value
) -> pd.DataFrame:
    """Recorded steps of a run: without workers 20 ms of loading before 12 ms of step, with two workers hidden."""
    trials, rows = [], []
    for kind in kinds:
        for workers in (0, 2):
            axes = {axis.name: axis.default for axis in AXES} | COMMON | KINDS[kind] | more | {"num_workers": workers}
            cell, _ = applicable(axes, device)
            step = 0 if kind == "load" else 12
            fetch = (8 if kind == "load" else 1) if workers else 20
            trial = {"run_id": "r", "trial_id": f"{kind}-{workers}", "cell_id": cell_id(cell), "device": device, **cell}
            trials += [
                {**trial, "trial_id": f"{trial['trial_id']}-{block}", "block": block, "outcome": "ok"}
                | {"samples_per_s": 32e3 / (fetch + step) + block}
                for block in range(3)
            ]
            rows += [
                {"run_id": "r", "trial_id": f"{trial['trial_id']}-1", "step": place}
                | _host(kind, fetch, device)
                | _loaded(place, workers, fetch + step, stamped=stamped)
                for place in range(COUNT)
            ]
    frame = pd.DataFrame(rows).reindex(columns=[column.name for column in STEPS])
    given = frame.astype({c.name: {"int64": "Int64", "string": "string"}[c.dtype] for c in STEPS})
    return analysis_steps.join_steps(
        analysis_steps.select_trials(pd.DataFrame(trials, columns=[column.name for column in TRIALS])), given
    )


def _host(kind: str, fetch: int, device: str) -> dict[str, int]:
    host = {"fetch_ns": fetch * MS, "other_ns": 0}
    if kind == "emulated":
        return host | {"forward_ns": 12 * MS}
    if kind == "load":
        return host
    host |= {"forward_ns": 4 * MS, "backward_ns": 7 * MS, "optimizer_ns": MS}
    if device == "cpu":
        return host
    spans = {"h2d": 2, "h2d_exposed": 2, "forward": 3, "backward": 4, "optimizer": 1, "idle": fetch + 2}
    return host | {"h2d_ns": 0} | {f"device_{name}_ns": ms * MS for name, ms in spans.items()}


def _loaded(place: int, workers: int, step: int, *, stamped: bool) -> dict[str, Any]:
    found: dict[str, Any] = {f"worker_{stage}_ns": 4 * MS for stage in WORKER_STAGES}
    if stamped:
        begun = (place * step - (40 if workers else 0)) * MS
        ended = begun + (18 if workers else 20) * MS
        found |= {"worker": place % workers if workers else None, "worker_begun_ns": begun, "worker_ended_ns": ended}
    return found


def texts(figure: Figure, panel: int = 0) -> str:
    picture = ET.fromstring(render.svg(figure.panels[panel], "p"))
    return " ".join(text.text for text in picture.iter() if text.text)


def drawn(figure: Figure, panel: int = 0) -> list[dict[str, Any]]:
    """The rows of a panel's bars."""
    spec = render.specification(figure.panels[panel])
    rows: list[dict[str, Any]] = spec["datasets"][spec["layer"][0]["data"]["name"]]
    return rows


@pytest.fixture(scope="module")
def figure() -> Figure:
    return chart.draw(steps())


@pytest.mark.slow
def test_a_panel_a_kind_of_step_each_with_picture_message_and_keys(figure: Figure) -> None:
    """Real training and an emulated step apart, as wide as a phone; the words name lanes and settings."""
    assert [panel.subtitle.split(",")[0].split(" of")[0] for panel in figure.panels] == [
        "real training",
        "emulated step: a sleep",
    ]
    for place, panel in enumerate(figure.panels):
        assert ET.fromstring(render.svg(panel, "p")).get("width") == "320"
        assert "NaN" not in json.dumps(render.specification(panel))
        said = texts(figure, place)
        for word in ("main process", "its loading", "worker 0", "worker 1", "no workers: ", "2 workers, fork: "):
            assert word in said
    labels = {key.label for key in figure.keys}
    assert {"decode (loading)", "fetch: wait for data", "emulated step"} <= labels
    assert all(PARTS[stage] in labels for stage in STAGE_COLOURS)


def test_the_message_is_made_of_the_numbers(figure: Figure) -> None:
    """Shares and pace: 20 of 32 ms without workers, 1 of 13 ms with them."""
    message = figure.panels[0].message
    spends = "of which the main process spends"
    assert f"No workers: 5 steps of 32.0 ms, {spends} 62\u00a0% loading its batches itself." in message
    assert f"2 workers, fork: 12 steps of 13.0 ms, {spends} 8\u00a0% fetching batches." in message


def test_the_table_holds_exactly_the_bars(figure: Figure) -> None:
    """As many lines as bars in the pictures, each with its begin and length; the CSV too."""
    bars = [row for place in range(len(figure.panels)) for row in drawn(figure, place)]
    assert len(figure.rows) == len(bars) == len(figure_csv(figure).splitlines()) - 1
    for row, bar in zip(figure.rows, bars, strict=True):
        assert row["begins (ms)"] == pytest.approx(bar["begin"], rel=1e-4)
        assert row["lasts (ms)"] == pytest.approx(bar["lasts"], rel=1e-4)
        assert 0 <= bar["from"] < bar["to"] <= 160
        assert bar["y"].endswith(f":{row['lane']}")


def test_single_times_are_called_so_and_the_cell_has_its_interval(figure: Figure) -> None:
    """Bars have no interval, and it is said why; each setting's throughput has one over its blocks."""
    assert any("so no interval" in note for note in figure.notes)
    spread = [note.count("n\u00a0=\u00a03") for note in figure.notes]
    assert [count for count in spread if count] == [2, 2]


@pytest.mark.slow
def test_a_device_has_a_lane_with_its_gaps() -> None:
    """Spans and idle gaps, how the clocks stand, and the share of idling in words."""
    found = chart.draw(steps(("real",), device="cuda"))
    assert "device" in texts(found).split()
    assert any(key.label == "device idle" for key in found.keys)
    assert "the device is idle for 69\u00a0% of the time" in found.message
    assert any("follow its own clock" in note for note in found.notes)
    ahead = chart.draw(steps(("real",), device="cuda", prefetcher="stream"))
    assert "copy stream" in texts(ahead)
    assert any("moves the next batch" in note for note in ahead.notes)
