"""How many cores a GPU needs: what a core loads, what a GPU trains, and the one over the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from made_trials import make_trials

from feedrate.charts import render
from feedrate.questions.cores import charts, page
from feedrate.schema.axes import Value

FILES: dict[str, Value] = {"workload": "imagefolder_standin", "storage_format": "folder", "patch_size": 224}
LOAD = FILES | {"mode": "load"}
GPU = FILES | {"amp": "bf16", "batch_size": 256}
CORES = 4


def trials(*more: tuple[dict[str, Value], Sequence[float]], device: str = "cpu") -> pd.DataFrame:
    """A vCPU loads 300 images a second alone, half of that beside three others, with another decoder twice that."""
    rates = [
        (LOAD | {"num_workers": 1}, (300.0, 301.0, 299.0)),
        (LOAD | {"num_workers": 4}, (600.0, 601.0, 599.0)),
        (LOAD | {"num_workers": 8}, (900.0, 901.0, 899.0)),
        (LOAD | {"num_workers": 4, "decoder": "simplejpeg", "scaled_decode": True}, (1200.0, 1201.0, 1199.0)),
        (LOAD | {"num_workers": 4, "storage_format": "lmdb"}, (5000.0, 5000.0)),
        ({"mode": "load", "workload": "synthetic", "num_workers": 4}, (9000.0, 9000.0)),
        (LOAD | {"num_workers": 4, "collate": "fast", "normalize_on": "device"}, (400.0, 400.0)),
    ]
    return make_trials([*rates, *more], device=device).convert_dtypes()  # as the store reads them


def view(frame: pd.DataFrame, cores: float = CORES) -> Any:
    """What the page takes of a run."""
    machine = SimpleNamespace(cores_logical=CORES, cores_physical=CORES // 2, virtualised=True)
    manifest = SimpleNamespace(machine=machine)
    return SimpleNamespace(trials_of=lambda _: frame, cores=float(cores), mark="m", manifest=manifest)


def test_a_core_s_rate_is_that_of_busy_cores() -> None:
    """A core's rate is the loader's ÷ workers, up to as many as cores, fastest decoder first."""
    found = charts.per_core(trials(), CORES)
    assert [(core["decoder"], core["workers"], round(core["value"])) for core in found] == [
        ("simplejpeg, scaled", 4, 300),
        ("Pillow", 1, 300),
        ("Pillow", 4, 150),
    ]
    assert [core["workers"] for core in charts.busiest(found)] == [4, 4]
    assert found[2]["lo"] == pytest.approx(150, rel=0.01)
    assert found[2]["lo"] < 150 < found[2]["hi"]


def test_decoders_are_ranked_with_as_many_workers_each() -> None:
    """Beside other busy cores a core loads less: one decoder alone ran with all of them."""
    rates = [(LOAD | {"num_workers": 2, "decoder": name}, (rate,) * 3) for name, rate in (("pil", 600), ("cv2", 580))]
    found = charts.per_core(make_trials([*rates, (LOAD | {"num_workers": 4}, (800.0,) * 3)]), CORES)
    assert [(core["decoder"], core["workers"]) for core in charts.busiest(found)] == [("Pillow", 2), ("OpenCV", 2)]
    frame = make_trials([*rates, (LOAD | {"num_workers": 4}, (800.0,) * 3)])
    text = page.section(view(frame), "cores")
    assert "as one does with 2 of them busy. With all 4 vCPUs busy each may load less." in text


@pytest.mark.parametrize("more", [{"batch_size": 64}, {"num_workers": 0}, {"patch_size": 320}])
def test_a_rate_is_that_of_one_setting(more: dict[str, Value]) -> None:
    """Beside other batches and sizes, and loading without workers, rates stay those of one setting, which is said."""
    figure = charts.images_per_core.draw(trials((LOAD | {"num_workers": 1} | more, (50.0,) * 3)), cores=CORES)
    assert figure.rows == charts.images_per_core.draw(trials(), cores=CORES).rows
    assert "resize to 224 px" in figure.panels[0].subtitle
    ((axis, _),) = more.items()
    assert axis == "num_workers" or f"{axis} {(LOAD | {'batch_size': 32})[axis]}" in figure.notes[0]


def test_the_size_in_words_is_that_of_the_images() -> None:
    """Pictures of another size are not called 224 px."""
    loaded = make_trials([(LOAD | {"num_workers": 1, "patch_size": 160}, (300.0,) * 3)])
    assert "resize to 160 px" in charts.images_per_core.draw(loaded, cores=CORES).panels[0].subtitle


@pytest.mark.parametrize(("cores", "needed", "idle"), [(1.5, 6, 75), (0.5, 3, 83)])
def test_a_part_of_a_core_counts_as_that(cores: float, needed: int, idle: int) -> None:
    """Page and chart say the same with 1.5 vCPUs, and with half of one, which is all that one worker has."""
    frame = trials((GPU | {"mode": "compute", "model": "resnet50"}, (1800.0, 1800.0)), device="cuda")
    text = page.section(view(frame, cores), "cores")
    assert f"{needed}.0 of these vCPUs" in text
    assert f"with {cores:g} it idles {idle}\u00a0%" in text
    assert f"{needed}.0 vCPUs keep it busy; with {cores} it idles {idle}\u00a0%." in (
        charts.gpu_idle.draw(frame, cores=cores).panels[0].message
    )


def test_without_a_gpu_its_rate_is_declared() -> None:
    """The sentence says whose rate it is, the table follows it, and the slider begins there."""
    text = page.section(view(trials()), "cores")
    assert "Here a core has 2 threads, as the system counts; its host may count otherwise." in text
    h100 = "feed an H100 as in MLPerf Storage (1,790 images a second); with 4 it idles 33\u00a0%"
    assert f"6.0 of these vCPUs (5.9–6.0) {h100}" in text
    assert "(published)" in text
    assert 'data-core="300"' in text
    assert 'data-core="150"' in text
    assert "No GPU was measured here" in text


def test_a_gpu_that_was_measured_is_named_with_its_models() -> None:
    """Its rate on batches that are there, and how idle it was while the loader fed it."""
    frame = trials(
        (GPU | {"mode": "compute", "model": "resnet50"}, (3000.0, 3000.0)),
        (GPU | {"mode": "compute", "model": "resnet18"}, (1000.0, 1000.0)),
        (GPU | {"mode": "train", "model": "resnet50", "num_workers": 4}, (600.0, 600.0)),
        device="cuda",
    )
    text = page.section(view(frame), "cores")
    needs = "10 of these vCPUs (10–10) feed this GPU with resnet50 (3,000 images a second); with 4 it idles 60\u00a0%"
    assert needs in text
    assert "3.3 of these vCPUs (3.3–3.3) feed this GPU with resnet18 (1,000 images a second); 4 are enough" in text
    assert "declared" not in text
    assert "80\u00a0%" in text


def test_a_gpu_is_as_fast_as_its_fastest_setting() -> None:
    """It says which of several that is; a training setting is held against the GPU’s rate with that very setting."""
    whole = FILES | {"mode": "compute", "model": "resnet50"}
    fed = FILES | {"mode": "train", "model": "resnet50", "num_workers": 4}
    rates = [(whole | {"amp": "bf16"}, (3000.0,) * 2), (whole, (1100.0,) * 2), (fed, (550.0,) * 2)]
    frame = trials(*rates, (fed | {"amp": "bf16"}, (600.0,) * 2), device="cuda")
    assert charts.rates_of(frame) == {"this GPU with resnet50, amp bf16": pytest.approx(3000)}
    (panel,) = charts.gpu_idle.draw(frame, cores=CORES).panels
    assert (panel.title, panel.subtitle) == ("this GPU with resnet50", "3,000 images a second, amp bf16")
    fed_table = page.section(view(frame), "cores").rpartition("<table")[2]
    assert re.findall(r"(\d+)\u00a0%", fed_table) == ["80", "50"]


@pytest.mark.parametrize(
    ("rate", "ends"), [(150.0, "20 to 20,000"), (3000.0, "200 to 20,000"), (45e3, "200 to 200,000")]
)
def test_a_slider_reaches_every_rate(rate: float, ends: str) -> None:
    """A GPU that is slower or faster than most moves the slider's ends, which are written."""
    frame = trials((GPU | {"mode": "compute", "model": "resnet50"}, (rate, rate)), device="cuda")
    text = page.section(view(frame), "cores")
    assert f", {ends}</label>" in text
    low, high, place = (int(re.search(rf'{name}="(\d+)"', text)[1]) for name in ("min", "max", "value"))  # type: ignore[index]
    assert low <= place <= high


def test_the_chart_says_what_a_core_loads() -> None:
    """A mark for each decoder and number of workers, the fastest and the slowest in words."""
    figure = charts.images_per_core.draw(trials(), cores=CORES)
    assert [row["decoder"] for row in figure.rows] == ["simplejpeg, scaled", "Pillow", "Pillow"]
    assert "A vCPU loads 300 images a second with simplejpeg, scaled" in figure.panels[0].message
    assert "2.0× the speed with Pillow" in figure.panels[0].message
    assert not charts.images_per_core.draw(trials()[:0], cores=CORES).panels


def test_idleness_falls_with_every_core() -> None:
    """A panel a GPU shows its idle share falling with vCPUs; the sentence gives both ends."""
    figure = charts.gpu_idle.draw(trials(), cores=CORES)
    assert "<svg" in render.picture(figure, "caption")
    assert [panel.title for panel in figure.panels] == list(charts.DECLARED)
    rows = [row for row in figure.rows if row["GPU"] == figure.panels[0].title and row["decoder"].startswith("simple")]
    idle = {row["vCPUs"]: row["idle (%)"] for row in rows}
    assert idle[1] == pytest.approx(100 * (1 - 300 / 938), abs=0.5)
    assert list(idle.values()) == sorted(idle.values(), reverse=True)
    assert min(idle.values()) == 0
    assert all(row["low"] <= row["idle (%)"] <= row["high"] for row in rows)
    message = "With simplejpeg, scaled, 3.1 vCPUs keep it busy; 4 feed it."
    assert figure.panels[0].message == message
    assert not charts.gpu_idle.draw(trials()[:0], cores=CORES).panels
