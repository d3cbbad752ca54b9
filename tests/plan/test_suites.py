"""Suites: what each file promises, and that the calibration suite plants what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from feedrate.plan import cells as expanding
from feedrate.plan import matrix, schedule, suite
from feedrate.plan.stopping import contrasts
from feedrate.schema import plugins
from feedrate.schema.axes import AXES, Cell
from feedrate.schema.plugins import names

PLANTS = ("read_us", "decode_us", "collate_us", "payload_bytes")
BALANCED_WITHIN = 1.5


@pytest.mark.parametrize("name", names("feedrate.suites"))
def test_a_suite_asks_and_shows(name: str) -> None:
    """Every suite asks one question, answers it with charts that exist, and says what it does not show."""
    found = suite.load(name)
    assert found.question.endswith("?")
    assert found.charts
    assert set(found.charts) <= set(names("feedrate.questions.*.charts"))
    assert "does not show" in " ".join((plugins.load("feedrate.suites", name).__doc__ or "").split())


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> schedule.Plan:
    """The calibration suite on a CPU."""
    return expanded("cpu", tmp_path_factory.mktemp("data"))


def expanded(device: str, folder: Path) -> schedule.Plan:
    whole = matrix.load(plugins.ROOT / "matrix.yaml", only="calibration", device=device)
    return expanding.expand(whole, schedule.Place(device, folder))


@pytest.fixture(scope="module")
def cells(planned: schedule.Plan) -> dict[str, Cell]:
    return {cell.cell_id: cell.axes for cell in planned.cells}


def is_planted(cell: Cell) -> bool:
    return cell.get("step") == "emulated" or any(cell.get(name) for name in PLANTS)


def test_every_kind_of_cost_is_planted(cells: dict[str, Cell]) -> None:
    """At least 24 configurations, replicas not counted, over every axis that the page names."""
    distinct = [cell for cell in cells.values() if is_planted(cell) and not cell["replica"]]
    assert len(distinct) >= 24
    values = {axis.name: {cell[axis.name] for cell in distinct if axis.name in cell} for axis in AXES}
    assert values["num_workers"] == {0, 1, 2, 4}
    assert values["prefetch_factor"] == {2, 4}
    assert values["read_shape"] == {"constant", "jittered", "heavy_tailed"}
    assert len(values["batch_size"]) >= 3
    assert all(len(values[name]) > 1 for name in (*PLANTS, "step_ms"))


def test_what_is_not_planted_can_be_taken_off(cells: dict[str, Cell]) -> None:
    """For every batch size without workers there is a loader alone that plants nothing, except beside a payload."""
    alone = [cell for cell in cells.values() if cell["num_workers"] == 0 and not cell["payload_bytes"]]
    bare = {cell["batch_size"] for cell in alone if cell["mode"] == "load" and not is_planted(cell)}
    assert {cell["batch_size"] for cell in alone} == bare


def test_twenty_pairs_of_equal_cells(cells: dict[str, Cell]) -> None:
    """Twenty pairs, no cell in two of them, so that they are independent."""
    pairs = [pair for pair in contrasts(cells) if pair.axis == "replica"]
    assert len(pairs) == 20
    assert len({cell for pair in pairs for cell in (pair.cell_a, pair.cell_b)}) == 40


@pytest.mark.parametrize("axis", ["decode_us", "step_ms"])
def test_effects_of_nothing_one_and_five_per_cent(cells: dict[str, Cell], axis: str) -> None:
    """Without workers, one planted cost is the same, a hundredth and a twentieth more."""
    pairs = [
        (cells[pair.cell_a], cells[pair.cell_b], pair.axis)
        for pair in contrasts(cells)
        if pair.axis in (axis, "replica") and cells[pair.cell_a].get(axis) and not cells[pair.cell_a]["num_workers"]
    ]
    ratios = {round(float(b[axis]) / float(a[axis]), 4) for a, b, _ in pairs}
    assert {1.0, 1.01, 1.05} <= ratios


def test_bottlenecks_are_planted_both_ways(cells: dict[str, Cell], planned: schedule.Plan) -> None:
    """Every training cell's ceilings are far enough apart to name one, and either comes with every worker count."""
    seen: dict[bool, set[int]] = {True: set(), False: set()}
    for cell in cells.values():
        if cell["mode"] != "train":
            continue
        load_ms = int(cell["batch_size"]) * (int(cell["read_us"]) + int(cell["decode_us"])) / 1000
        load_ms = (load_ms + int(cell["collate_us"]) / 1000) / max(1, int(cell["num_workers"]))
        slower, faster = sorted((load_ms, float(cell["step_ms"])), reverse=True)
        assert slower >= BALANCED_WITHIN * faster
        seen[load_ms > float(cell["step_ms"])].add(int(cell["num_workers"]))
    assert seen == {True: {0, 1, 2, 4}, False: {0, 1, 2, 4}}
    assert planned.ceilings == ()


def test_a_block_is_short(planned: schedule.Plan) -> None:
    """A block takes little more than a minute by the plan's own estimate, so that ten minutes give eight of them."""
    assert planned.block_s <= 75


def test_it_runs_with_a_gpu_too(tmp_path: Path) -> None:
    """On CUDA the same cells are planned, their copies beside them."""
    found = expanded("cuda", tmp_path)
    assert len(found.cells) >= 50
    assert {cell.axes["mode"] for cell in found.ceilings} == {"copy"}


ABOUT_CLAIMS = {"transfer", "collate", "workers", "caching", "training", "parallel", suite.CLAIMS}


@pytest.mark.parametrize("name", names("feedrate.suites"))
def test_a_suite_of_claims_measures_their_cells_alone(name: str) -> None:
    """Suites that are there for claims ask for every cell of theirs and for no ceilings; others keep their own."""
    found = suite.load(name)
    assert found.claims_only == (name in ABOUT_CLAIMS)
    if not found.claims_only:
        return
    assert "claims" in found.charts
    assert found.budget
    claims = [claim for _, claim in suite.claims().values()] if name == suite.CLAIMS else found.claims
    wanted = suite.slices_of(claims)
    assert wanted
    assert all(part in found.slices for part in wanted)


def test_claims_stand_in_eight_suites() -> None:
    """Every one of them has some; neither calibration nor the suite of all claims has any of its own."""
    assert {where for where, _ in suite.claims().values()} == (ABOUT_CLAIMS - {suite.CLAIMS}) | {"loader", "storage"}
    assert not suite.load(suite.CLAIMS).claims
