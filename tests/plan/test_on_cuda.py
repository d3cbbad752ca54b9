"""What is planned on a machine with a GPU: blocks enough to decide something, and windows that suit what is asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from feedrate.machine.probes import gpu
from feedrate.plan import cells, matrix, schedule, suite
from feedrate.schema import plugins
from feedrate.schema.errors import InputError
from feedrate.schema.metrics import METRICS

HOST = schedule.Host("cuda", Path("no data here"), gpus=1, cores=16)
"""One GPU and 16 cores, where nothing was measured before: the estimate's own constants count."""
PROFILES = {"quick": 5, "reference": 5, "gpu": 5, "transfer": 7, "tune": 5}
"""Every profile with a budget, and the blocks that must fit into it; then nothing need be cut."""
SUITES = {
    **dict.fromkeys(("calibration", "cores", "loader", "loaders", "storage"), 5),
    **dict.fromkeys(("caching", "claims", "collate", "scaling", "training", "transfer", "workers"), 6),
}
"""Every suite that runs on one GPU, likewise: claims may be certain after six."""
ELSEWHERE = {"parallel": "world_size 2 needs 2 CUDA devices", "script": "sweeps nothing", "tune": "sweeps nothing"}
"""What does not run there by its name, and what is said."""


def planned(profile: str = "quick", only: str = "", nodes: int = 1) -> schedule.Plan:
    """What the repository's own matrix.yaml comes to there, or on so many nodes like it together."""
    wanted = matrix.load(plugins.ROOT / "matrix.yaml", profile, only, device="cuda")
    return cells.expand(wanted, replace(HOST, nodes=nodes))


@pytest.mark.parametrize(
    ("profile", "only", "blocks"),
    [*((name, "", most) for name, most in PROFILES.items()), *(("quick", name, most) for name, most in SUITES.items())],
)
def test_a_profile_or_suite_decides_something(profile: str, only: str, blocks: int) -> None:
    """What is advertised fits its own budget often enough."""
    found = planned(profile, only)
    assert found.matrix.budget_s
    assert found.blocks >= blocks
    assert only or not found.cuts()


@pytest.mark.parametrize(("only", "said"), ELSEWHERE.items())
def test_a_suite_that_cannot_run_is_refused(only: str, said: str) -> None:
    """With the reason, where none of its cells can run."""
    with pytest.raises(InputError, match=said):
        planned(only=only)


def test_nodes_that_sweep_together_decide_something() -> None:
    """In the suite's budget four nodes measure 1 to 4 of them, loading alone and training."""
    alone, four = planned(only="scaling"), planned(only="scaling", nodes=4)
    assert four.blocks >= 6
    assert not four.cuts()
    for found, most in ((alone, 1), (four, 4)):
        counts = Counter((cell.axes["mode"], cell.axes["nodes"]) for cell in found.cells)
        assert counts == {(mode, nodes): 2 for mode in ("load", "train") for nodes in range(1, most + 1)}
        assert all(cell.axes["world_size"] == cell.axes["nodes"] for cell in found.cells if "world_size" in cell.axes)
        (left_out,) = found.excluded
        assert left_out.count == 4 * (12 - most)
        assert left_out.reason.startswith(f"more nodes than sweep together here, {most} (feedrate sweep --on slurm")


def test_windows_are_long_where_the_driver_averages() -> None:
    """All cells of claims about utilization and power have windows that NVML can see, hardly any other cell has."""
    found = planned(only=suite.CLAIMS)
    seconds = {cell.cell_id: found.window_s(cell) for cell in found.cells}
    compared = {cell: effect.metric for claim in found.claims for effect in claim.effects for cell in effect.weights}
    averaged = {cell for cell, metric in compared.items() if metric and METRICS[metric].averaged}
    assert averaged
    assert min(seconds[cell] for cell in averaged) >= gpu.LEAST_WINDOW_NS / 1e9
    assert sum(window > 1 for window in seconds.values()) <= 20
    assert set(seconds.values()) == {1, gpu.LEAST_WINDOW_NS / 1e9}
