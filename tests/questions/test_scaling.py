"""How many nodes are fed at once, and what training on several brings: planted truths, sentences, chart, page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import fake_run
import numpy as np
import pandas as pd
import pytest
from fake_kind import Fake
from made_trials import make_trials
from rich.console import Console

from feedrate.analysis.estimate import Floats
from feedrate.pages.runs import load_runs
from feedrate.questions.nodes.sweep import Sweep, named
from feedrate.questions.scaling import page, sentences
from feedrate.questions.scaling.analysis import knee, loading, training
from feedrate.questions.scaling.charts import nodes_at_once
from feedrate.schema.axes import Value

LOAD: dict[str, Value] = {"mode": "load", "storage_format": "memmap", "batch_size": 8}
TRAIN: dict[str, Value] = {"mode": "train", "parallel": "ddp", "patch_size": 16}
Counts = Sequence[int]


def paces(random: np.random.Generator, counts: Counts, full: float, noise: float, blocks: int = 8) -> Floats:
    """Log throughput of a node, numbers of nodes × blocks, from a storage that feeds so many at full pace."""
    levels = np.minimum(0, np.log(full) - np.log(counts))[:, None]
    shared = random.normal(0, noise, (1, blocks))
    return np.asarray(levels + shared + random.normal(0, noise, (len(counts), blocks)), dtype=np.float64)


@pytest.mark.slow
@pytest.mark.parametrize(("full", "blocks"), [(1.5, 5), (2.6, 8), (5.0, 5)])
def test_a_knee_is_found_where_it_was_planted(full: float, blocks: int) -> None:
    """Its 95 % interval covers the truth in at least 92 % of 400 sweeps."""
    random, counts = np.random.default_rng(2), (1, 2, 3, 4, 6, 8)
    found = [knee(paces(random, counts, full, 0.03, blocks), np.array(counts, float)) for _ in range(400)]
    covered = [each is not None and each.low <= full <= each.high for each in found]
    assert np.mean(covered) >= 0.92
    assert np.median([each.value for each in found if each]) == pytest.approx(full, rel=0.01)


def test_a_knee_needs_three_whole_blocks() -> None:
    """A block that lacks a number of nodes does not count."""
    logs = paces(np.random.default_rng(1), (1, 2, 4), 2.0, 0.01, 4)
    logs[0, 0] = np.nan
    assert knee(logs, np.array([1.0, 2, 4])) is not None
    logs[1, 1] = np.nan
    assert knee(logs, np.array([1.0, 2, 4])) is None


def loaded(
    full: float, counts: Counts = (1, 2, 4, 8), rate: float = 500, noise: float = 0.01, **axes: Value
) -> pd.DataFrame:
    """Trials of nodes that load at once, those of one block already averaged."""
    logs = paces(np.random.default_rng(7), counts, full, noise)
    cells = [
        ({**LOAD, **axes, "nodes": count}, list(rate * np.exp(row))) for count, row in zip(counts, logs, strict=True)
    ]
    return make_trials(cells)


def test_a_storage_that_is_full_is_told() -> None:
    """With the knee, what each node keeps, and the pace of one alone."""
    (found,) = loading(loaded(3.0))
    assert found.knee is not None
    assert found.knee.value == pytest.approx(3.0, rel=0.02)
    assert found.kept.value == pytest.approx(3 / 8, rel=0.02)
    assert [level.nodes for level in found.levels] == [1, 2, 4, 8]
    said = sentences.of_loading(found)
    assert "with 8 at once each keeps 37" in said or "with 8 at once each keeps 38" in said
    assert "up to 3.0 nodes (3.0–3.0, n\u00a0=\u00a08) load at full pace" in said


def test_a_storage_that_is_not_full_has_no_knee() -> None:
    """Noise alone is no fall; that there is none is said only where the interval leaves no room for one."""
    (found,) = loading(loaded(99.0))
    assert found.knee is None
    assert "they do not slow each other" in sentences.of_loading(found)
    (wide,) = loading(loaded(99.0, noise=0.2))
    assert wide.knee is None
    assert "too few repetitions to tell whether that is a fall" in sentences.of_loading(wide)


def trained(efficiency: float = 0.8, exchange: float = 0.1) -> pd.DataFrame:
    """A training in one process and on two nodes, with its gradients exchanged and without."""
    cells = []
    for nodes, rate in ((1, 1000.0), (2, 2000 * efficiency)):
        for buckets, times in (("many", 1.0), ("none", 1 / (1 - exchange))):
            axes = {**TRAIN, "world_size": nodes, "nodes": nodes, "ddp_buckets": buckets}
            cells.append((axes, [rate * times * off for off in (0.99, 1.0, 1.01)]))
    return make_trials(cells)


def test_efficiency_and_exchange_are_those_planted() -> None:
    """Paired by block, so that what blocks have in common costs no certainty."""
    (found,) = training(trained())
    first, second = found.levels
    assert (first.efficiency, first.exchange and round(first.exchange.value, 6)) == (None, 0.1)
    assert second.efficiency is not None
    assert second.exchange is not None
    assert list(second.efficiency.row().values()) == pytest.approx([0.8, 0.8, 0.8, 3])
    assert list(second.exchange.row().values()) == pytest.approx([0.1, 0.1, 0.1, 3])
    said = sentences.of_training(found)
    assert "an efficiency of 80" in said
    assert "exchanging gradients takes 10" in said
    trials = trained()
    assert not training(trials[trials["nodes"].eq(1)])
    (panel,) = nodes_at_once.draw(trained()).panels
    assert panel.message == said


@pytest.mark.slow
def test_page_and_terminal_tell_the_newest_sweep_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage that is full comes first; a sweep of nodes by themselves has no such page."""
    fake_run.write(tmp_path / "apart", Fake(node=0, blocks=2, batches=(8,)))
    assert page.page(load_runs(tmp_path / "apart")) is None
    results = tmp_path / "together"
    for node in range(3):
        fake = Fake(f"20260103T030405Z-000{node}", node=node, blocks=2, batches=(8,), together=True)
        fake_run.write(results, fake)
    trials = pd.concat([loaded(99.0, num_workers=2), loaded(3.0), trained()])
    monkeypatch.setattr(Sweep, "joined", lambda _: trials)
    found = page.page(load_runs(results))
    assert found is not None
    assert list(found.figures) == ["scaling"]
    assert "up to 3.0 nodes (" in str(found.body).split('fr-answer">')[1].split("</p>")[0]
    assert str(found.body).count("20260103T030405Z-000") == 3
    out = io.StringIO()
    page.show(named("", results), Console(file=out, width=200))
    assert out.getvalue().count("samples a second") >= 3
