"""Suites: what each file promises, what calibration plants, and that every claim of the sources is tested once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from feedrate.charts.figure import charts_by_name
from feedrate.plan import cells as expanding
from feedrate.plan import matrix, schedule, suite
from feedrate.schema import plugins
from feedrate.schema.plugins import names

BALANCED_WITHIN = 1.5


@pytest.mark.parametrize("name", names("feedrate.suites"))
def test_a_suite_asks_and_shows(name: str) -> None:
    """Every suite asks one question, answers it with charts that exist, and says what it does not show."""
    found = suite.load(name)
    assert found.question.endswith("?")
    assert found.charts
    assert set(found.charts) <= set(charts_by_name())
    assert "does not show" in " ".join((plugins.load("feedrate.suites", name).__doc__ or "").split())


@cache
def expanded(device: str, name: str) -> schedule.Plan:
    """A suite as it is planned on a machine that has every library, two GPUs at most, and no photographs."""
    wanted = matrix.load(plugins.ROOT / "matrix.yaml", only=name, device=device)
    return expanding.expand(wanted, schedule.Host(device, Path("no data here"), gpus=2, cores=2))


def test_bottlenecks_are_planted_both_ways() -> None:
    """Every training cell's ceilings are far enough apart to name one, and either comes with every worker count."""
    seen: dict[bool, set[int]] = {True: set(), False: set()}
    planned = expanded("cpu", "calibration")
    for cell in (planned_cell.axes for planned_cell in planned.cells):
        if cell["mode"] != "train":
            continue
        load_ms = int(cell["batch_size"]) * (int(cell["read_us"]) + int(cell["decode_us"])) / 1000
        load_ms = (load_ms + int(cell["collate_us"]) / 1000) / max(1, int(cell["num_workers"]))
        slower, faster = sorted((load_ms, float(cell["step_ms"])), reverse=True)
        assert slower >= BALANCED_WITHIN * faster
        seen[load_ms > float(cell["step_ms"])].add(int(cell["num_workers"]))
    assert seen == {True: {0, 1, 2, 4}, False: {0, 1, 2, 4}}
    assert planned.ceilings == ()


ALL = suite.claims()
LIMITED = {"lmdb-readahead", "lmdb-beyond-memory", "chunking-under-shuffle"}
"""They need a memory cgroup."""
CORES = {"twelve-workers", "fewer-workers-small-batch", "ddp-scaling", "ddp-overlap"}
"""They need more cores than two."""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_claim_is_asked_or_its_reason_is_known(device: str) -> None:
    """On either device; what a CPU can tell is asked there, and on CUDA what needs one device."""
    found = expanded(device, suite.CLAIMS)
    asked = {claim.id for claim in found.claims}
    assert asked | set(found.untestable) == set(ALL)
    assert not asked & set(found.untestable)
    assert all(found.untestable.values())
    needs = ("cpu",) if device == "cpu" else ("cpu", "cuda")
    able = {name for name, (_, claim) in ALL.items() if claim.needs in needs}
    assert asked <= able | {"ddp-over-dp"}
    assert able - asked <= {"jit-script", "fuse-pointwise", *CORES, *LIMITED}, (
        "what may lack a library, a second device, cores or a memory cgroup"
    )


def test_a_block_of_claims_is_short() -> None:
    """Seven blocks of all claims fit into the suite's own 31 minutes of two cores."""
    found = expanded("cpu", suite.CLAIMS)
    assert len(found.cells) <= 196
    assert not found.ceilings
    assert found.block_s <= 31 * 60 / 7
    slow = [cell for cell in found.cells if found.cell_s(cell) > 1.4]
    assert len(slow) <= 26
