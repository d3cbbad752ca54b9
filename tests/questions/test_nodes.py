"""Whether nodes of a cluster are alike: rates of false alarms and of finding, stages, variance, page and terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fake_run
import numpy as np
import pandas as pd
import pytest
from fake_kind import Fake
from made_trials import make_trials
from rich.console import Console

from feedrate.analysis.estimate import Floats
from feedrate.pages.runs import load_runs
from feedrate.questions.nodes import page
from feedrate.questions.nodes.analysis import ALL, find, found_by, judge, spread
from feedrate.questions.nodes.sweep import Sweep, named
from feedrate.schema.axes import Value
from feedrate.schema.errors import InputError
from feedrate.store import clusters, runs

NODES, CELLS, BLOCKS, NOISE = 8, 6, 8, 0.03
SLOW = 3
"""The node that is planted slow."""
SHAPE = (NODES, CELLS, BLOCKS)
NOISES: Mapping[str, Callable[[np.random.Generator], Floats]] = {
    "normal": lambda random: random.normal(size=SHAPE),
    "heavy tails": lambda random: random.standard_t(3, SHAPE) / np.sqrt(3),
    "half is common to a block": lambda random: (
        np.sqrt(0.5) * (random.normal(size=SHAPE) + random.normal(size=(NODES, 1, BLOCKS)))
    ),
    "one noisy node": lambda random: random.normal(size=SHAPE) * np.where(np.arange(NODES) == 1, 3, 1)[:, None, None],
    "every node drifts": lambda random: (
        random.normal(size=SHAPE) + random.normal(size=(NODES, 1, 1)) * np.linspace(-1, 1, BLOCKS)
    ),
}
"""Noise of nodes × cells × blocks, of variance 1."""


def parts(random: np.random.Generator, slower: float = 0.0, noise: str = "normal") -> dict[str, Floats]:
    """A cluster of which one node is slower: all cells, two that load, one that copies, one that computes."""
    logs = NOISE * NOISES[noise](random) + random.normal(8, 2, CELLS)[:, None]
    logs[SLOW] += np.log1p(-slower)
    return {ALL: logs, "load": logs[:, :2], "copy": logs[:, 2:3], "compute": logs[:, 3:4]}


def rates(clusters: int, slower: float, noise: str = "normal") -> tuple[float, float]:
    """Share of clusters in which the slow node is named, and in which any other is."""
    random, hits, false = np.random.default_rng(5), 0, 0
    for _ in range(clusters):
        judged = judge(parts(random, slower, noise))
        who = set(judged.loc[judged["outlying"], "at"])
        hits += SLOW in who
        false += bool(who - {SLOW} if slower else who)
    return hits / clusters, false / clusters


@pytest.mark.slow
def test_a_node_that_is_5_per_cent_slower_is_found() -> None:
    """It is found in 95 % of clusters at 3 % noise, and another in at most 5 %."""
    hits, false = rates(60, 0.05)
    assert hits >= 0.95
    assert false <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_alike_nodes_are_seldom_named(noise: str) -> None:
    """In 5 % of clusters at most, all nodes and all stages together; the noise is independent or drifts steadily."""
    assert rates(40, 0.0, noise)[1] <= 0.05


@pytest.mark.slow
def test_what_a_sweep_could_find_is_told_rightly() -> None:
    """A node that is as slow as the page says is found in about 95 % of clusters."""
    random = np.random.default_rng(3)
    slower = float(np.median([found_by(judge(parts(random))) for _ in range(9)]))
    assert 0.03 < slower < 0.05
    assert 0.9 <= rates(60, slower)[0] <= 0.99


def test_several_slow_nodes_do_not_hide_each_other() -> None:
    """Three of eight are off by the same: exactly these are named, and the centre is that of the others."""
    logs = parts(np.random.default_rng(1))[ALL]
    logs[[0, 4, 6]] += np.log(0.9)
    judged = judge({ALL: logs})
    assert list(judged.loc[judged["outlying"], "at"]) == [0, 4, 6]
    assert judged.loc[judged["outlying"], "ratio"].to_numpy() == pytest.approx(0.9, abs=0.02)
    assert judged.loc[~judged["outlying"], "ratio"].to_numpy() == pytest.approx(1.0, abs=0.02)


def at(*levels: float) -> dict[str, Floats]:
    """Nodes whose log throughput is so many per cent off, without noise."""
    return {ALL: np.repeat(np.array(levels)[:, None] / 100, 4, axis=1)[:, None]}


def test_a_node_is_held_against_the_others_that_are_alike() -> None:
    """A node is compared with the others that are alike; of three, only the odd one is named."""
    three = judge(at(0.0, 0.3, 0.8))
    assert np.log(three["ratio"]).to_numpy() == pytest.approx([-0.0055, -0.001, 0.0065])
    eight = judge(at(-0.4, -0.2, 0.0, 0.2, 0.4, -9, -9, -9))
    assert np.log(eight["ratio"][2]) == pytest.approx(0.0)
    assert list(judge(at(0.0, 0.1, -5.0)).query("outlying")["at"]) == [2]


def test_what_all_nodes_show_in_a_block_is_no_noise() -> None:
    """All warm up by 20 %: distances and errors stay, also those of a node that has other blocks."""
    planted = parts(np.random.default_rng(7), 0.05)
    warm = {name: part + np.linspace(-0.2, 0, BLOCKS) for name, part in planted.items()}
    for column in ("ratio", "error", "outlying"):
        assert judge(warm)[column].to_numpy() == pytest.approx(judge(planted)[column].to_numpy())
    logs = parts(np.random.default_rng(7))[ALL] + np.linspace(-0.2, 0, BLOCKS)
    ratio = judge({ALL: logs})["ratio"][1]
    logs[1, :, :4] = np.nan
    more = np.full((NODES, CELLS, 1), np.nan)
    more[1] = logs[1, :, -1:] + 0.3
    assert judge({ALL: np.concatenate([logs, more], axis=2)})["ratio"][1] == pytest.approx(ratio, abs=0.02)


def test_a_trial_that_failed_moves_no_node() -> None:
    """Cells differ a hundredfold: a node's mean is not that of the cells which happened to end well."""
    logs = parts(np.random.default_rng(2))[ALL]
    logs[0, 0, :6] = np.nan
    ratios = judge({ALL: logs})["ratio"]
    assert ratios.to_numpy() == pytest.approx(1.0, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 0.02])
def test_variance_between_nodes_is_read_back(between: float) -> None:
    """Planted standard deviations between and within nodes lie in their intervals, as often as 95 % ones say."""
    random, covered, within = np.random.default_rng(4), 0, []
    for _ in range(300):
        logs = parts(random)[ALL] + random.normal(0, between, NODES)[:, None, None]
        found = spread(logs)
        covered += found.lo <= between <= found.hi
        within.append(found.within)
        assert found.lo <= found.between <= found.hi
    assert covered / 300 >= 0.93
    assert np.mean(within) == pytest.approx(NOISE / np.sqrt(CELLS), rel=0.03)


CELLS_OF_STAGES: Mapping[str, Mapping[str, Value]] = {
    "load": {"mode": "load", "workload": "div2k", "storage_format": "png", "num_workers": 1},
    "copy": {"mode": "copy", "workload": "div2k"},
    "compute": {"mode": "compute", "workload": "div2k"},
    "train": {"mode": "train", "workload": "div2k", "num_workers": 1},
    "emulated": {"mode": "train", "workload": "div2k", "num_workers": 1, "step": "emulated", "step_ms": 5.0},
}


def cluster(slow: Mapping[str, float], nodes: int = NODES, decode: float = 1.0, **columns: Any) -> pd.DataFrame:
    """Trials of a cluster of which one node is slower in some cells, and decodes so many times as long."""
    random, frames = np.random.default_rng(8), []
    for node in range(nodes):
        off = slow if node == SLOW else {}
        cells = [
            (axes, list(1000 * off.get(name, 1.0) * np.exp(random.normal(0, 0.01, BLOCKS))))
            for name, axes in CELLS_OF_STAGES.items()
        ]
        frame = make_trials(cells, device="cuda", run_id=f"run{node}", **columns)
        for stage in ("read", "decode", "transform", "collate"):
            longer = decode if node == SLOW and stage == "decode" else 1.0
            frame[f"worker_{stage}_ns"] = 1e6 * longer * np.exp(random.normal(0, 0.01, len(frame)))
        frames.append(frame.assign(node=node))
    return pd.concat(frames, ignore_index=True)


def test_the_slow_stage_is_named() -> None:
    """A node that decodes slowly: loading is off, and of the stamps decoding alone; copying and computing are not."""
    found = find(cluster({"load": 0.9, "train": 0.95}, decode=1.2))
    assert {node: set(rows["part"]) for node, rows in found.outlying.items()} == {SLOW: {ALL, "load", "decode"}}
    ((who, lines),) = page.reasons(found)
    assert who == "Node 3"
    assert page.answer(found).endswith("in all settings, and off in loading alone and decoding.")
    assert [line.split(":")[0] for line in lines] == ["All settings", "Loading alone", "Decoding"]
    assert "Decoding: 16" in lines[2].replace("17", "16")
    assert "% slower" in lines[2]


def test_cells_are_held_against_the_same_alone() -> None:
    """Emulated steps, other data and failed cells are left out; too little to judge is said."""
    trials = cluster({})
    assert find(trials).cells == len(CELLS_OF_STAGES) - 1
    failed = trials["node"].eq(2) & trials["mode"].eq("copy")
    assert find(trials.assign(outcome=trials["outcome"].mask(failed, "oom"))).cells == len(CELLS_OF_STAGES) - 2
    apart = find(trials.assign(data_hash=trials["node"].astype(str)))
    assert apart.cells == 0
    assert page.answer(apart).startswith("No setting but emulated steps ended well in two repetitions")
    assert not page.draw(apart).panels
    two = find(cluster({"load": 0.5}, nodes=2))
    assert "2 nodes measured something, and 3 are needed" in page.answer(two)
    gone = "Node 2 and node 3 measured nothing that ended well."
    assert page.absent(two, range(4)) == gone
    sweep = Sweep("s", dict.fromkeys(range(100)), 256)  # type: ignore[arg-type]  # the runs are not read
    assert sweep.size == "100 of 256 nodes (the others have no run here)"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of eight nodes, the fourth 5 % slower, and a run by itself."""
    folder = tmp_path_factory.mktemp("results")
    for node in range(fake_run.NODES):
        pace = 0.95 if node == SLOW else 1.0
        fake_run.write(folder, Fake(f"20260102T030405Z-{node:04x}", node=node, pace=pace, device="cuda", batches=(8,)))
    fake_run.write(folder)
    cluster = clusters.ClusterFolder(folder, fake_run.SWEEP)
    cluster.create()
    for run in runs.runs(folder):
        if place := run.manifest.cluster:
            machine_id = run.manifest.machine.machine_id
            cluster.tell(clusters.NodeStatus(node=place.node, name=f"gpu-{place.node:02d}", machine_id=machine_id))
    return folder


def printed(results: Path, sweep: str = "") -> str:
    out = io.StringIO()
    page.show(named(sweep, results), results, Console(file=out, width=120))
    return out.getvalue()


@pytest.mark.slow
def test_the_terminal_names_the_node(results: Path) -> None:
    """By number and name, with how far it is off; every node has a line, the slowest first."""
    text = printed(results)
    assert "1 of 8 nodes stands out: node 3 (gpu-03) is 5." in text.replace("is 4.", "is 5.")
    lines = [line for line in text.splitlines() if line.startswith(" node ")][1:]
    assert len(lines) == fake_run.NODES
    assert lines[0].startswith(" node 3 (gpu-03)")
    assert printed(results, fake_run.SWEEP) == text


def test_a_sweep_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With the names of those that are, or with how one is made."""
    with pytest.raises(InputError, match="no sweep of a cluster's nodes"):
        named("", tmp_path)
    fake_run.write(tmp_path, Fake(node=0, batches=(8,), workers=(0,), blocks=1))
    with pytest.raises(InputError, match=f"SWEEP x: no such sweep.*{fake_run.SWEEP}"):
        named("x", tmp_path)


@pytest.mark.slow
def test_the_page_keeps_names_to_itself(results: Path) -> None:
    """It says which node is slow by its number, links its run, and never has a name of a node."""
    made = page.page(load_runs(results))
    assert made
    text = made.markdown()
    assert "1 of 8 nodes stands out: node 3 is" in text.replace("\u00a0", " ")
    assert 'href="runs/20260102T030405Z-0003.html">node 3</a>' in text
    assert "gpu-0" not in text + "".join(figure.html for figure in made.figures.values())
    assert made.figures["nodes"].citation


@pytest.mark.slow
def test_the_chart_says_who_is_off() -> None:
    """A panel a part names the slow nodes; of many nodes only those farthest off are drawn."""
    figure = page.draw(find(cluster({"load": 0.9, "train": 0.95})))
    assert [panel.title for panel in figure.panels][:2] == ["All settings", "Loading alone"]
    assert "outlying: node 3." in figure.panels[0].message
    assert "outlying: none." in figure.panels[2].message
    many = page.draw(find(cluster({"load": 0.9}, nodes=34)))
    assert any("Of 34 nodes 32 are drawn" in note for note in many.notes)
    assert len(many.rows) == 34 * len(many.panels)
