"""Which runs home, suites and claims draw on: the newest, and the reference runs that others come after."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from feedrate.pages import selection
from feedrate.plan.suite import MAIN
from feedrate.store import marks
from feedrate.store.marks import REFERENCE, SELF_REPORTED, Beside


@dataclass(frozen=True)
class Stub:
    """A run of which nothing but its manifest, and what lies beside it, may be read."""

    page: str
    machine_id: str
    suite: str = MAIN
    tier: str = SELF_REPORTED
    device: str = "cpu"

    @property
    def beside(self) -> Beside:
        return Beside(tier=self.tier)

    @property
    def manifest(self) -> Any:
        return SimpleNamespace(suites={self.suite: []}, claims=(), device=self.device)

    @property
    def trials(self) -> Any:
        raise AssertionError("trials were read")


def runs(count: int, name: str, machine: str = "", **what: str) -> list[Any]:
    """Runs of one machine, or each of a machine of its own."""
    return [Stub(f"{name}{at}", machine or f"{name}{at}", **what) for at in range(count)]


@pytest.mark.parametrize(
    "newer", [runs(selection.RUNS, "quick", "old"), runs(selection.MACHINES, "other"), runs(120, "more")]
)
def test_a_reference_run_is_not_pushed_off(newer: list[Any]) -> None:
    """Newer sweeps of its machine, or of others, take the place of a self-reported run, and of no reference run."""
    for tier in marks.TIERS:
        old = Stub("old", "old", tier=tier)
        assert (old in selection.select([*newer, old]).featured) is (tier == REFERENCE)


def test_reference_runs_that_are_kept_are_so_many() -> None:
    """However many there are, their number is bounded; reference runs of other suites have no such right."""
    many = [run for at in range(100) for run in runs(10, f"m{at}-", f"m{at}", tier=REFERENCE)]
    stored = runs(2 * selection.MACHINES, "vouched", suite="storage", tier=REFERENCE)
    everyone = selection.select([*stored, *many])
    kept = [shown for shown in everyone.featured if shown.suite == MAIN]
    assert kept == [run for at in range(selection.MACHINES) for run in many[10 * at : 10 * at + selection.RUNS]]
    assert len([shown for shown in everyone.featured if shown in stored]) == selection.MACHINES


def test_runs_on_one_device_push_off_none_on_the_other() -> None:
    """However many runs a machine has on its CPU, the newest on its GPU are kept, and it counts as one machine."""
    gpu = runs(selection.RUNS + 1, "gpu", "both", device="cuda")
    cpu = runs(selection.RUNS + 1, "cpu", "both")
    others = runs(selection.MACHINES, "other")
    everyone = selection.select([*cpu, *gpu, *others])
    assert everyone.featured == [*cpu[:-1], *gpu[:-1], *others[:-1]]
    assert everyone.of_suite(MAIN) == [*cpu[:-1], *gpu[:-1], others[0]]
