"""The pictures of a run: roofline, scaling with workers, copies by size, telemetry, drift; checked on made-up runs."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.analysis.blocks import successful
from feedrate.analysis.ceilings import cells_with_ceilings
from feedrate.charts import render
from feedrate.charts.embed import figure_csv
from feedrate.charts.figure import MOST_PANELS, Figure
from feedrate.pages.runs import RunView, draw
from feedrate.questions.loader.charts import roofline
from feedrate.questions.runs import telemetry as seen
from feedrate.questions.runs.charts import _tracks, drift, telemetry
from feedrate.questions.transfer.charts import transfer_size
from feedrate.questions.workers.charts import worker_scaling
from feedrate.schema import plugins, words

NAMES = ("roofline", "worker_scaling", "transfer_size", "telemetry", "drift")
SLOW = pytest.mark.slow
Show = Callable[..., RunView]
WHOLE: dict[str, Any] = {"device": "cuda", "workers": (0, 1, 2), "batches": (8, 32), "busy": True}
"""A run that every one of them can be drawn from."""


def specs(figure: Figure) -> list[dict[str, Any]]:
    return [render.specification(panel) for panel in figure.panels]


def data(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return list(spec["datasets"].values())


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_draws_says_and_tabulates(name: str, show: Show) -> None:
    """On a run with a GPU each has panels that draw narrow and wide, a message with numbers, a table and a legend."""
    figure = draw(name, show(**WHOLE))
    assert figure.panels
    assert figure.rows
    assert figure.keys
    assert figure.question.endswith("?")
    assert len(figure.panels) <= 2 * MOST_PANELS
    assert figure_csv(figure).count("\n") == len(figure.rows) + 1
    for width in (320, 670):
        picture = ET.fromstring(render.svg(figure.panels[0], "p", width))
        assert picture.get("width") == str(width)
        assert len(list(picture.iter("{http://www.w3.org/2000/svg}path"))) > 5
    for panel in figure.panels:
        assert any(character.isdigit() for character in panel.message)
        assert "nan" not in panel.message.lower()


@pytest.mark.parametrize("name", ["telemetry", *(pytest.param(name, marks=SLOW) for name in NAMES if name != NAMES[3])])
def test_a_picture_is_the_same_twice(name: str, show: Show) -> None:
    """The same records give the same specification, to the byte."""
    run = show(**WHOLE)
    first, second = (json.dumps(specs(draw(name, run))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "what",
    [
        {"fails": "all"},
        pytest.param({"blocks": 1, "nulls": True}, marks=SLOW),
        pytest.param({"asked_only": True}, marks=SLOW),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_without_data_a_picture_is_a_sentence(name: str, what: dict[str, Any], show: Show) -> None:
    """A run that failed, one without intervals and an old one break nothing: panels, or why there are none."""
    figure = draw(name, show(**what))
    assert figure.panels or figure.missing.endswith(".")
    empty = draw(name, show(**what), "no such suite")
    assert not empty.panels
    assert empty.missing.endswith(".")


def test_emulated_and_real_stand_apart(show: Show) -> None:
    """No panel of roofline or scaling mixes an emulated step with real training, and each says which it is."""
    for name in ("roofline", "worker_scaling"):
        figure = draw(name, show(workers=(0, 1, 2)))
        kinds = [("emulated" in panel.subtitle, "emulated" in panel.title) for panel in figure.panels]
        assert any(any(kind) for kind in kinds)
        assert any(not any(kind) for kind in kinds)
        for panel in figure.panels:
            assert "emulated" not in panel.subtitle or "sleep" in panel.subtitle


def test_the_roofline_shows_what_was_judged(show: Show) -> None:
    """Efficiency and bottleneck of every mark are those of the analysis; the message counts bottlenecks."""
    run = show()
    figure = roofline.draw(run.trials)
    cells = cells_with_ceilings(run.trials)
    training = cells[cells["mode"].eq("train") & cells["load_ceiling"].gt(0) & cells["samples_per_s"].gt(0)]
    marks = [row for row in figure.rows if row.get("held back by")]
    assert len(marks) == len(training)
    assert sorted(row["efficiency"] for row in marks) == pytest.approx(sorted(training["efficiency"].astype(float)))
    real = [row for row in marks if row["panel"] == "Real training"]
    count = sum(row["held back by"] == "compute-bound" for row in real)
    assert f"{count} are compute-bound" in figure.panels[0].message
    for row in real:
        roof = min(1.0, row["feed ÷ step"])
        assert row["achieved ÷ step"] <= 1.25 * roof


def test_scaling_is_speed_up_by_processes(show: Show) -> None:
    """Efficiency is the paired speed-up ÷ processes, one for the base; cores are marked where they are known."""
    trials = show(workers=(0, 1, 2)).trials
    figure = worker_scaling.draw(trials, 2)
    for row in figure.rows:
        times = max(1, row["num_workers"]) / max(1, row["over workers"])
        assert row["efficiency"] == pytest.approx(row["speed-up"] / times)
        assert row["num_workers"] != row["over workers"] or row["efficiency"] == pytest.approx(1.0)
    assert "2 cores" in json.dumps(specs(figure)[0])
    assert "2 cores" not in json.dumps(specs(worker_scaling.draw(trials))[0])


def test_copies_by_size_need_a_device(show: Show) -> None:
    """On a CPU it says that nothing was copied; on a GPU pinned memory is faster, as made up; the bus is not meant."""
    assert "without a CUDA device" in transfer_size.draw(show().trials).missing
    figure = transfer_size.draw(show(**WHOLE).trials)
    rates = {row["memory"]: row["GB per s"] for row in figure.rows if row["copies"] == "Copies alone"}
    assert rates["pinned"] > 1.3 * rates["pageable"]
    assert "pinned" in figure.panels[0].message
    assert all(row["low"] <= row["GB per s"] <= row["high"] for row in figure.rows)
    assert any("no rate of the bus" in note for note in figure.notes)


def test_telemetry_is_thinned_and_marks_trials(show: Show) -> None:
    """At most 600 points a line; the peak that was seen is in the table; marked trials are in the legend."""
    run = show(busy=True)
    figure = draw("telemetry", run)
    assert 10 < len(figure.rows) <= 600
    steal = float(run.telemetry["steal_pct"].max())
    assert max(row["steal, %: most"] or 0.0 for row in figure.rows) == steal
    assert all(len(rows) <= 600 for rows in data(specs(figure)[0]))
    assert {"control cell", "trial with a flag", "CPU: workers"} <= {key.label for key in figure.keys}
    assert f"{run.trials['flags'].notna().sum()} of {len(run.trials)} trials carry a flag" in figure.message
    assert not any("GPU" in key.label for key in figure.keys)
    assert "GPU utilization, %" in draw("telemetry", show(**WHOLE)).rows[0]


def test_telemetry_says_whose_the_cores_were(show: Show) -> None:
    """The mean of everything else is that of the samples, over all cores of the system, whichever a run might use."""
    run = show(busy=True)
    online = 64
    mean = seen.means(seen.in_order(run.telemetry), online)
    drawn = telemetry.draw(run.telemetry, run.cores, online)
    assert f"of {run.cores:g} cores busy on average, everything else {words.number(mean['others'], 2)}" in drawn.message
    assert "what everything else used is not known" not in " ".join(drawn.notes)
    unknown = telemetry.draw(run.telemetry, run.cores)
    assert "everything else" not in unknown.message
    assert "what everything else used is not known" in " ".join(unknown.notes)


def test_a_value_stands_where_its_scale_says() -> None:
    """A track's zero is its lower edge, its top the upper one; nothing stands above it."""
    placed, whole = _tracks.place([_tracks.Track("a", 4.0, line="a"), _tracks.Track("b", 100.0, line="b", units=2.0)])
    low, high = placed[1], placed[0]
    assert low.base == 0.0
    assert high.base + high.track.units < whole
    assert low.at("datum.b") == "isValid(datum.b)?0+0.02*min(datum.b,100):null"
    assert high.base > low.base + low.track.units
    assert [_tracks.nice(value) for value in (0.0, 0.7, 1.0, 2.1, 23.0, 80.0)] == [1.0, 1.0, 1.0, 2.5, 25.0, 100.0]


def control(trials: pd.DataFrame) -> pd.Series:
    """Which trials are those of the control cell."""
    cell = trials.loc[trials["role"].eq("control"), "cell_id"].iloc[0]
    return trials["cell_id"].eq(cell) & trials["outcome"].eq("ok")


def test_drift_is_told_with_its_interval(show: Show) -> None:
    """The mean of the control cell is that over its blocks; its trials are all in the table, flagged ones apart."""
    run = show(busy=True)
    figure = drift.draw(run.trials)
    own = run.trials[control(run.trials)]
    logs = np.log(own["samples_per_s"].astype(float)).groupby(own["block"].astype(int)).mean()
    mean = next(row for row in figure.rows if row["what"] == "mean over blocks")
    assert mean["samples per s"] == pytest.approx(math.exp(logs.mean()))
    assert mean["low"] < mean["samples per s"] < mean["high"]
    trials = [row for row in figure.rows if row["what"] == "trial"]
    assert len(trials) == len(own)
    flagged = own["flags"].notna().sum()
    marks = [row for rows in data(specs(figure)[0]) for row in rows if "rate" in row]
    assert sum(row["flags"] != "none" for row in trials) == flagged > 0
    assert sum(row["kind"] == "flagged" for row in marks) == flagged
    assert "an hour" in figure.rows[len(trials) + 1]["what"]


def test_an_interval_that_leaves_out_1_is_said(show: Show) -> None:
    """Equal sides hold 1 and the message says so; where every second trial is faster by half, it says the contrary."""
    trials = show().trials
    assert "holds 1, as it should" in drift.draw(trials).panels[1].message
    own = successful(trials[control(trials)]).sort_values(["block", "position"])
    place = own.groupby("block").cumcount()
    kept = own[place < 2]
    turn = np.arange(len(kept)) // 2 % 2 == np.arange(len(kept)) % 2
    wrong = kept.assign(samples_per_s=np.where(turn, 100.0, 150.0) * (1 + 0.001 * np.arange(len(kept))))
    assert "leaves out 1" in drift.draw(wrong).panels[1].message


def test_a_run_without_a_control_cell_says_so(show: Show) -> None:
    """An older run without roles has no drift to show."""
    assert "No control cell" in drift.draw(show(asked_only=True).trials).missing


def test_the_five_are_found_by_their_names() -> None:
    """Suites name charts by file."""
    assert set(NAMES) <= set(plugins.names("feedrate.questions.*.charts"))
