"""Which loader: the same batches by several of them, what each takes, and against PyTorch's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import WEATHER, make_trials, times

from feedrate.charts import render
from feedrate.questions.loaders import charts, page
from feedrate.schema.axes import Value

LOAD: dict[str, Value] = {"mode": "load", "workload": "div2k_standin", "storage_format": "lmdb"}
RATES = {("torch", 1): 100.0, ("torch", 2): 190.0, ("threads", 2): 95.0, ("grain", 2): 190.5, ("spdl", 2): 380.0}
COSTS = {"main_cpu_pct": 50.0, "workers_cpu_pct": 150.0, "pss_peak_bytes": 512 << 20, "startup_ns": 1_500_000_000}


def trials(names: tuple[str, ...] = ("torch", "threads", "grain", "spdl")) -> pd.DataFrame:
    """SPDL is twice as fast as two workers of PyTorch's, threads half as fast, Grain as fast."""
    random = np.random.default_rng(1)
    return make_trials(
        [
            (
                LOAD | {"loader": loader, "num_workers": workers},
                [rate * weather * random.normal(1, 0.01) for weather in WEATHER],
            )
            for (loader, workers), rate in RATES.items()
            if loader in names
        ],
        **COSTS,
    )


def sections(frame: pd.DataFrame) -> tuple[str, str]:
    view: Any = SimpleNamespace(trials_of=lambda _: frame, mark="m")
    return page.sections(view, page.SUITE)


def test_loaders_are_held_against_pytorchs_own() -> None:
    """With as many workers, paired by block; what each costs stands beside their speed."""
    frame = trials()
    text, traits = sections(frame)
    assert "Speed against DataLoader, all with 2 workers:" in text
    assert "Faster: SPDL " in text
    assert "All with" not in text
    assert "Slower: feedrate’s threads 0.5" in text
    assert "1 of 3 others ties with DataLoader" in text
    assert "Its workers" in traits
    rows = {(row["loader"], row["workers"]): row for row in charts.loader_rates.draw(frame).rows}
    own, threads = rows["DataLoader", 2], rows["feedrate’s threads", 2]
    assert own["CPU for 1,000 samples (s)"] == pytest.approx(10, rel=0.05)  # two busy cores, 190 samples a second
    assert (own["memory (MiB)"], own["first batch after (s)"], own["÷ DataLoader"]) == pytest.approx((512, 1.5, None))
    assert threads["÷ DataLoader: low"] < 0.5 < threads["÷ DataLoader: high"]


def test_other_numbers_of_workers_are_said_task_by_task() -> None:
    """Where tasks were loaded with other numbers of workers, each answer says which."""
    one = [(LOAD | {"loader": name, "num_workers": 1, "patch_size": 32}, times(1)) for name in ("torch", "spdl")]
    text, _ = sections(pd.concat([trials(), make_trials(one, **COSTS)]))
    assert "Speed against DataLoader:" in text
    assert "All with 2 workers." in text
    assert "All with 1 worker." in text


def test_the_default_is_known_in_any_format() -> None:
    """Loaders that share another format are held against PyTorch's all the same, and say which format theirs is."""
    rates = [(LOAD | {"loader": loader, "num_workers": 2}, times(rate)) for loader, rate in (("spdl", 2), ("grain", 3))]
    text, _ = sections(make_trials([*rates, (LOAD | {"storage_format": "png", "num_workers": 2}, times(1))], **COSTS))
    assert "Faster: Grain, lmdb 3.00× (3.00–3.00) and SPDL, lmdb 2.00× (2.00–2.00)." in text


def test_a_loader_without_a_comparison_is_named() -> None:
    """One with fewer workers, or one repetition, is no silent loser among those that were compared."""
    more = [(LOAD | {"loader": "webdataset", "num_workers": 1}, times(1))]
    more += [(LOAD | {"loader": "grain", "num_workers": 2}, times(1)[:1])]
    text, _ = sections(pd.concat([trials(("torch", "threads", "spdl")), make_trials(more, **COSTS)]))
    assert " Too few repetitions with 2 workers: Grain. Not measured with 2 workers: WebDataset." in text


def test_one_loader_is_no_comparison() -> None:
    """Then there is neither a table nor a picture."""
    assert sections(trials(("torch",))) == ("", "")
    assert not charts.loader_rates.draw(trials(("torch",))).panels


def test_the_chart_has_the_fastest_first() -> None:
    """A mark for each loader and number of workers, the fastest and the slowest in words."""
    figure = charts.loader_rates.draw(trials())
    order = [row["loader"] for row in figure.rows]
    assert (order[0], order[-1]) == ("SPDL", "feedrate’s threads")
    assert order.index("DataLoader") + 1 == len(order) - 1 - order[::-1].index("DataLoader")  # its rows lie together
    assert "Fastest: SPDL, 2 workers, 38" in figure.panels[0].message
    assert [key.label for key in figure.keys] == ["1 worker", "2 workers"]


def test_memory_is_held_against_speed() -> None:
    """A line joins those that none beats in both; the leanest and the fastest of these are named."""
    frame = trials()
    mib = frame["loader"].map({"torch": 300, "threads": 200, "grain": 900, "spdl": 400})
    figure = charts.loader_memory.draw(frame.assign(pss_peak_bytes=mib * 2**20))
    (panel,) = figure.panels
    assert "<svg" in render.picture(figure, "caption")
    assert panel.message.startswith("Least memory: feedrate’s threads, 200 MiB, ")
    assert "Most speed: SPDL, 400 MiB, 38" in panel.message
    line = panel.chart.layer[0].data.values
    assert [row["loader"] for row in line] == ["feedrate’s threads", "DataLoader", "SPDL"]
    assert {row["loader"]: row["memory (MiB)"] for row in figure.rows}["Grain"] == pytest.approx(900)
    assert not charts.loader_memory.draw(trials(("torch",))).panels
