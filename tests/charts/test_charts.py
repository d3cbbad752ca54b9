"""What every chart promises, checked on made-up runs."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from feedrate.charts import render
from feedrate.charts import theme as charts_theme
from feedrate.charts.embed import figure_csv, figure_html
from feedrate.charts.figure import Figure
from feedrate.charts.marks import estimated
from feedrate.questions.experiment.charts import utilization
from feedrate.schema import plugins
from feedrate.schema.columns import PHASES

CHARTS = {
    name: plugins.load("feedrate.questions.*.charts", name) for name in plugins.names("feedrate.questions.*.charts")
}
NAMES = [name for name, chart in CHARTS.items() if not hasattr(chart, "READS")]
"""Charts that are drawn from cells; one that reads trials has tests of its own."""
Trials = Callable[..., pd.DataFrame]


@pytest.fixture(scope="module")
def cpu(trials: Trials) -> pd.DataFrame:
    return trials()


def draw(name: str, frame: pd.DataFrame) -> Figure:
    figure: Figure = plugins.load("feedrate.questions.*.charts", name).draw(estimated(frame))
    return figure


def test_the_five_charts_are_there() -> None:
    """Phases, throughput, heat map, utilization and formats are found by their file names."""
    assert {"phases", "throughput", "heatmap", "utilization", "formats"} <= set(NAMES)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", NAMES)
def test_a_chart_draws_says_and_tabulates(name: str, device: str, trials: Trials) -> None:
    """On a whole run every chart has panels, each with a picture and a message with numbers, and a table."""
    figure = draw(name, trials(device=device))
    assert figure.panels
    assert figure.rows
    assert figure.keys
    assert figure.question.endswith("?")
    for panel in figure.panels:
        assert any(character.isdigit() for character in panel.message)
        picture = ET.fromstring(render.svg(panel, "p"))
        assert picture.get("width") == "320"
        assert len(list(picture.iter("{http://www.w3.org/2000/svg}path"))) > 1  # marks alone: empty ones are left out


@pytest.mark.parametrize("name", NAMES)
def test_emulated_never_passes_for_real(name: str, cpu: pd.DataFrame) -> None:
    """Every panel of an emulated step says so in its own title, and no panel mixes it with real training."""
    figure = draw(name, cpu)
    emulated = [panel for panel in figure.panels if "emulated" in panel.subtitle]
    assert emulated
    for panel in figure.panels:
        spec = render.specification(panel)
        assert spec["title"]["subtitle"] == [panel.subtitle]
        assert ("emulated" in panel.subtitle) != any(word in panel.subtitle for word in ("real", "alone", "GPU"))
    kinds = {row["what ran"] for row in figure.rows}
    assert any("emulated" in kind for kind in kinds)
    assert all(kind for kind in kinds)


def test_the_stand_in_is_named(cpu: pd.DataFrame) -> None:
    """The procedural stand-in is called div2k_standin in titles and tables, never div2k."""
    for name in NAMES:
        figure = draw(name, cpu)
        assert "div2k" not in {row["workload"] for row in figure.rows}
        assert any(panel.title.startswith("div2k_standin,") for panel in figure.panels)


def test_throughput_shows_what_was_recorded(cpu: pd.DataFrame) -> None:
    """A mark is the geometric mean over blocks and its whisker Student's t on logs, recomputed here from the rows."""
    row = next(
        row
        for row in draw("throughput", cpu).rows
        if "emulated" in row["what ran"] and row["batch_size"] == 128 and row["num_workers"] == 2
    )
    cell = cpu[
        cpu["step"].eq("emulated")
        & cpu["batch_size"].eq(128)
        & cpu["num_workers"].eq(2)
        & cpu["storage_format"].eq("png")
        & cpu["outcome"].eq("ok")
    ]
    logs = np.log((cell["samples"] / cell["wall_ns"] * 1e9).to_numpy(float))
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    assert row["n"] == len(logs)
    assert [row["samples per s"], row["low"], row["high"]] == pytest.approx(
        [math.exp(logs.mean() + shift) for shift in (0, -half, half)], rel=1e-6
    )


def test_phases_add_up_to_the_time_of_a_sample(cpu: pd.DataFrame) -> None:
    """The segments of a bar sum to its length, and its length is one over the throughput."""
    for row in draw("phases", cpu).rows:
        parts = [row.get(f"{phase} (us)") for phase in (*PHASES, "emulated")]
        assert sum(part for part in parts if part is not None) == pytest.approx(row["total (us)"], rel=1e-3)
        assert row["low (us)"] <= row["total (us)"] <= row["high (us)"]


def test_one_colour_per_phase_everywhere(trials: Trials) -> None:
    """A phase has the same colour in every panel of every run, and no two phases share one."""
    seen: dict[str, set[str]] = {}
    for device in ("cpu", "cuda"):
        for panel in draw("phases", trials(device=device)).panels:
            scale = render.specification(panel)["layer"][0]["encoding"]["color"]["scale"]
            for label, colour in zip(scale["domain"], scale["range"], strict=True):
                seen.setdefault(label, set()).add(colour)
    assert len(seen) == 7
    assert all(len(colours) == 1 for colours in seen.values())
    assert len(set.union(*seen.values())) == 7


@pytest.mark.parametrize("name", NAMES)
def test_one_block_has_no_interval_and_says_so(name: str, trials: Trials) -> None:
    """With one block no chart draws or tabulates an interval."""
    figure = draw(name, trials(blocks=1, fails="none"))
    assert figure.panels
    for row in figure.rows:
        assert all(row.get(low) is None for low in ("low", "low (us)"))
    if name != "phases":
        assert "no interval" in figure.message
    drawn = json.dumps([render.specification(panel) for panel in figure.panels])
    assert "NaN" not in drawn


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_show_is_said(name: str, trials: Trials) -> None:
    """When every trial failed a chart has no axes, only a sentence; the page shows it."""
    figure = draw(name, trials(fails="all"))
    assert not figure.panels
    assert figure.missing.endswith(".")
    html = figure_html(figure, "x", "x.csv")
    assert "<svg" not in html
    assert figure.missing in html


def test_missing_metrics_are_said(trials: Trials) -> None:
    """Utilization that no probe gave is said to be missing; the other charts draw as before."""
    frame = trials(nulls=True)
    assert draw("utilization", frame).missing
    assert all(draw(name, frame).panels for name in NAMES if name != "utilization")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_one_batch_size_is_enough(name: str, trials: Trials) -> None:
    """With one batch size a chart draws what there is or says what is missing."""
    figure = draw(name, trials(batches=(32,)))
    assert figure.panels or figure.missing
    assert all(render.svg(panel, "p").startswith("<svg") for panel in figure.panels)


def test_the_source_is_beside_and_never_mixed_up(trials: Trials, cpu: pd.DataFrame) -> None:
    """The 2019 figures are shown as published; beside CPU utilization they are said not to be comparable in kind."""
    for frame, comparable in ((cpu, False), (trials(device="cuda"), True)):
        figure = draw("utilization", frame)
        ours, source = figure.panels[:-1], figure.panels[-1]
        values = {row["batch"]: row["value"] for row in source.chart.to_dict()["datasets"].popitem()[1]}
        assert values == {8: 33, 16: 31, 32: 37, 64: 52, 128: 84} == utilization.UTILIZATION
        assert "1080 Ti" in source.title
        assert "1080" not in "".join(panel.title for panel in ours)
        assert ("not comparable in kind" in source.message) is not comparable
        quantity = utilization.KINDS["gpu_util_pct" if comparable else "cpu_util_pct"]
        assert all(quantity in panel.message for panel in ours)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_same_records_same_bytes(name: str, cpu: pd.DataFrame) -> None:
    """Drawn twice, specification and picture are byte-identical, and the ids of two pictures never meet."""
    first, second = draw(name, cpu), draw(name, cpu)
    assert figure_html(first, "a", "a.csv") == figure_html(second, "a", "a.csv")
    assert figure_csv(first) == figure_csv(second)


def test_hostile_text_stays_text(trials: Trials, fake_run: ModuleType) -> None:
    """Markup in a workload's name is escaped in figures, and a formula in a CSV file is defused."""
    figure = draw("throughput", trials(hostile=True))
    html = figure_html(figure, "x", "x.csv")
    assert "<script>document" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html
    row = {"workload": "=1+1"}
    assert figure_csv(Figure("t", "q?", rows=(row,))).splitlines()[1] == "'=1+1"
    assert fake_run.HOSTILE in figure_csv(figure).replace('""', '"')


def _contrast(one: str, other: str) -> float:
    def light(code: str) -> float:
        parts = [int(code[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_text_can_be_read_in_both_themes(theme: int) -> None:
    """Text has WCAG's contrast of 4.5 on paper and panel, and the numbers of the heat map on every step."""
    palette = {name: pair[theme] for name, pair in charts_theme.PALETTE.items()}
    for text in ("ink", "muted", "accent"):
        for ground in ("paper", "panel"):
            assert _contrast(palette[text], palette[ground]) >= 4.5, (text, ground)
    for step in range(charts_theme.HEAT_STEPS):
        assert _contrast(palette["paper" if step >= 3 else "ink"], palette[f"heat-{step}"]) >= 4.5, step


def test_the_readme_figure_stands_alone(cpu: pd.DataFrame, tmp_path: Path) -> None:
    """The whole figure is one SVG on white with real colours, its legend and its origin in it."""
    figure = draw("phases", cpu)
    drawn = render.picture(figure, "a machine; run x & y")
    ET.fromstring(drawn)
    assert "var(" not in drawn
    assert "#ffffff" in drawn
    assert "run x &amp; y" in drawn
    assert "emulated step (sleep)" in drawn


def test_utilization_has_its_interval(cpu: pd.DataFrame) -> None:
    """Utilization is the mean over blocks with Student's t interval, recomputed here from the rows."""
    row = next(
        row
        for row in draw("utilization", cpu).rows
        if "emulated" in row["what ran"] and (row["batch_size"], row["num_workers"]) == (128, 2)
    )
    cell = cpu[
        cpu["step"].eq("emulated")
        & cpu["batch_size"].eq(128)
        & cpu["num_workers"].eq(2)
        & cpu["storage_format"].eq("png")
        & cpu["outcome"].eq("ok")
    ]
    values = cell["cpu_util_pct"].to_numpy(float)
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    assert [row["per cent"], row["low"], row["high"]] == pytest.approx(
        [values.mean(), values.mean() - half, values.mean() + half], rel=1e-6
    )


_SEEN = {  # Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB
    "all colours": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


def _lab(code: str, eye: np.ndarray) -> np.ndarray:
    """A colour in CIE Lab (D65) as an eye sees it."""
    parts = np.array([int(code[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    seen = np.clip(eye @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    x, y, z = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 0.0089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("eye", list(_SEEN))
def test_phases_can_be_told_apart_by_every_eye(eye: str, theme: int) -> None:
    """With each kind of colour vision every two phases differ by at least 10 in CIE Lab, and each from the paper."""
    names = [f"phase-{phase}" for phase in (*PHASES, "emulated")]
    colours = {name: _lab(charts_theme.PALETTE[name][theme], _SEEN[eye]) for name in (*names, "paper")}
    for place, one in enumerate(colours):
        for other in list(colours)[place + 1 :]:
            assert np.linalg.norm(colours[one] - colours[other]) >= 10, (one, other)
