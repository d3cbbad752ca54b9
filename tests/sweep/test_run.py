"""A run in progress: whose cells run, what gets a budget's last seconds; a sweep of a claim up to its verdict."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from sweeping import Place

from feedrate.plan import request, suite
from feedrate.plan.claim import Claim
from feedrate.plan.claim_selection import GROWN, GROWS_AFTER, LEAST_BLOCKS, claims_of
from feedrate.plan.duration import TEMPLATE_S
from feedrate.plan.options import SweepOptions
from feedrate.questions.claims import terminal as claims_terminal
from feedrate.schema.errors import InputError
from feedrate.store import runs
from feedrate.sweep import record
from feedrate.sweep.launcher import Template
from feedrate.sweep.run import ActiveRun

CERTAIN = "persistent-workers"
"""Six blocks decide it."""
FACT = "next-epoch-copies"
"""Two checks decide it."""


def asking(folder: Path, names: Sequence[str], blocks: str) -> Place:
    """A folder with a matrix that asks about some claims."""
    place = Place(folder)
    claims: dict[str, list[Claim]] = {}
    for name, claim in (suite.claims()[name] for name in names):
        claims.setdefault(name, []).append(claim)
    protocol = yaml.safe_load(f"{{warmup_s: 0.1, window_s: 0.2, min_steps: 4, timeout_s: 30, blocks: {blocks}}}")
    suites = {name: list(suite.slices_of(asked)) for name, asked in claims.items()}
    document = {"version": 1, "protocol": protocol, "suites": suites, "profiles": {"quick": {}}}
    place.matrix.write_text(yaml.safe_dump(document))
    return place


BEGUN = "2026-01-01T00:00:00+00:00"


@pytest.mark.slow
def test_a_plain_fact_is_confirmed(template: Template, tmp_path: Path) -> None:
    """A sweep of a claim ends when that is certain, says its verdict, and the results say it again in a sentence."""
    place = asking(tmp_path, [FACT], "[4, 30]")
    output = place.sweep(template)
    (run,) = runs.runs(place.results)
    trials = run.table("trials")
    assert (trials["outcome"] == "ok").all(), trials["error_message"].dropna().to_list()
    assert set(trials["role"]) <= {"cell", "control"}
    assert [(asked.claim, asked.reason) for asked in run.manifest.claims] == [(FACT, "done")]
    assert run.manifest.stop_reason == "target"
    assert "every question is answered as well as wanted" in " ".join(output.split())
    assert set(run.manifest.untestable) == {claim.id for claim in claims_of(["workers"])} - {FACT}
    assert re.search(f"confirmed.* {FACT}|{FACT}.* confirmed", output)
    again = Console(file=io.StringIO(), record=True)
    claims_terminal.show_results(place.results, again, whole=True)
    printed = again.export_text()
    words = (f"{FACT}: ", " Seen in ", "Not testable here (needs a CUDA device): ")
    assert [phrase for phrase in words if phrase not in printed] == []
    with pytest.raises(InputError, match="claims: unknown machine 'nobody'; expected one of "):
        claims_terminal.show_results(place.results, again, ["nobody"])


def test_without_a_run_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run; make sweep SUITE=claims makes one"):
        claims_terminal.show_results(tmp_path, Console(file=io.StringIO()))


class Silent:
    """A screen that shows nothing."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ActiveRun]:
    """A run of two claims with a budget, before its first block."""
    place = asking(tmp_path, [CERTAIN, "gil-threads"], "[8, 30]")
    made = request.make(SweepOptions(matrix=place.matrix, data_root=place.data, results=place.results, budget="60s"))
    (place.results / "machine").mkdir(parents=True)
    folder = runs.begin(place.results / "machine", "run", {"key": "", "seed": 1, "started_at": BEGUN})
    run = ActiveRun(made, folder, 1, BEGUN, Silent())
    yield run
    run.close()


def play(run: ActiveRun, blocks: range, seconds: float, clear: str, effect: float = 3.0, wobble: float = 0.0) -> None:
    """Trials that took so long; one claim has an effect that wobbles by blocks, any other is lost in noise."""
    for block in blocks:
        factors = {
            cell: effect * (1 + wobble * (-1) ** block) if claim.id == clear else 1 + 0.4 * (-1) ** block
            for claim in run.blocks.claims.claims
            for number in claim.effects
            for cell, weight in number.weights.items()
            if weight > 0
        }
        for position, cell in enumerate(run.blocks.live(block)):
            trial = {
                "cell_id": cell.cell_id,
                "block": block,
                "position": position,
                "outcome": "ok",
                "samples_per_s": 1000 * factors.get(cell.cell_id, 1),
                "started_at": BEGUN,
                "trial_wall_ns": int(seconds * 1e9),
            }
            run.add(trial)


def give(run: ActiveRun, budget_s: float) -> None:
    """Another budget."""
    plan = run.blocks.plan
    run.blocks.plan = replace(plan, matrix=replace(plan.matrix, budget_s=budget_s))


def test_the_certain_make_room(running: ActiveRun) -> None:
    """After six blocks only the cells of the claim that is open still run; the manifest says which claim is done."""
    assert {claim.id for claim in running.blocks.claims.claims} == {CERTAIN, "gil-threads"}
    play(running, range(LEAST_BLOCKS), 0.01, CERTAIN)
    left = {cell.cell_id for cell in running.blocks.live(LEAST_BLOCKS)}
    certain, open_ = (
        next(c for c in running.blocks.claims.claims if c.id == name) for name in (CERTAIN, "gil-threads")
    )
    assert left == set(open_.cells)
    assert not left & (certain.cells - open_.cells)
    assert not running.blocks.answered(LEAST_BLOCKS)
    manifest = record.assemble(running, "budget")
    assert {asked.claim: asked.reason for asked in manifest.claims} == {CERTAIN: "done", "gil-threads": "budget"}


def test_a_budgets_last_seconds_go_to_what_is_least_certain(running: ActiveRun) -> None:
    """Where a whole block does not fit any more, a part of it does; a resumed run would choose the same."""
    play(running, range(2), 1.0, CERTAIN)
    whole = len(running.blocks.live(2))
    spent = 2 * whole
    give(running, spent + 12 + 0.75 * whole)
    order = running.blocks.order(2)
    assert 0 < len({cell.cell_id for cell in order}) < whole
    assert order == running.blocks.order(2)


def test_what_the_budget_cannot_decide_waits_for_what_it_can(running: ActiveRun) -> None:
    """One claim is a few blocks from its verdict, the other lost in noise: only the former's cells run."""
    play(running, range(LEAST_BLOCKS), 1.0, CERTAIN, effect=1.05, wobble=0.02)
    near = next(claim for claim in running.blocks.claims.claims if claim.id == CERTAIN)
    spent = LEAST_BLOCKS * len(running.blocks.live(0)) + TEMPLATE_S * (LEAST_BLOCKS + 1)
    give(running, spent + 10 * len(near.deciding))
    assert len(running.blocks.claims.open(LEAST_BLOCKS)) == 2
    assert {cell.cell_id for cell in running.blocks.live(LEAST_BLOCKS)} > near.cells
    assert {cell.cell_id for cell in running.blocks.order(LEAST_BLOCKS)} == near.deciding < near.cells


def test_windows_of_an_open_claim_near_no_difference_grow(running: ActiveRun) -> None:
    """From its tenth block on its cells have longer windows, a later time-out and a longer forecast; others have not.

    A resumed run has the same, and windows do not shrink when the estimate moves away.
    """
    near = next(claim.deciding for claim in running.blocks.claims.claims if claim.id == CERTAIN)
    cells = running.local.plan.all_cells
    assert len(near) < len(cells)
    short, limit = running.local.plan.window_s(cells[0]), running.local.plan.matrix.protocol.timeout_s
    play(running, range(GROWS_AFTER), 1.0, CERTAIN, effect=1.0, wobble=0.1)
    assert {running.job("trial", cell, GROWS_AFTER - 1)["window_s"] for cell in cells} == {short}
    resumed = ActiveRun(running.local, running.folder, 1, BEGUN, Silent())
    for trial in running.blocks.trials:
        resumed.add(trial)
    more = (GROWN - 1) * short
    for run in (running, resumed):
        for cell in cells:
            longer = more if cell.cell_id in near else 0
            assert run.job("trial", cell, GROWS_AFTER)["window_s"] == pytest.approx(short + longer)
            assert run.blocks.timeout_s(cell, GROWS_AFTER) == pytest.approx(limit + longer)
        assert run.block_s(GROWS_AFTER, cells) == pytest.approx(TEMPLATE_S + len(cells) + more * len(near))
    play(running, range(GROWS_AFTER, GROWS_AFTER + 2), 1.5, CERTAIN, effect=3.0)
    seconds = running.block_s(GROWS_AFTER + 2, [cell for cell in cells if cell.cell_id in near])
    assert seconds == pytest.approx(TEMPLATE_S + 1.5 * len(near))
    resumed.close()
