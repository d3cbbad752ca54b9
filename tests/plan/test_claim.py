"""A claim: what it is made of, and what is refused."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.plan import cells as expanding
from feedrate.plan import matrix, schedule, suite
from feedrate.plan.claim import Aside, Claim, Effect, Values, cell_on, pair, slope, terms, untestable, validate
from feedrate.plan.suite import slices_of
from feedrate.schema import plugins
from feedrate.schema.axes import cell_id
from feedrate.schema.errors import InputError

WORKERS = pair({"num_workers": 0}, {"num_workers": 2}, {"mode": "load"})


def claim(effect: Effect | None = WORKERS, **fields: object) -> Claim:
    """A claim that can be asked, but for what a test changes."""
    whole = {"id": "one", "says": "It is so.", "sources": ("IO",), "design": "It is tested.", **fields}
    return Claim(effect=effect, **whole)  # type: ignore[arg-type]


def refused(what: Claim) -> str:
    """The complaint about a claim of a made-up file."""
    with pytest.raises(InputError) as caught:
        validate(what, "suites/x.py")
    return str(caught.value)


def test_an_unknown_axis_is_refused() -> None:
    """The complaint names the file, the claim, the axis and the nearest one."""
    message = refused(claim(pair({"num_worker": 0}, {"num_worker": 2}, {"mode": "load"})))
    assert message.startswith("suites/x.py: claim one: unknown axis 'num_worker'; expected one of ")
    assert message.endswith("(did you mean 'num_workers'?)")


def test_an_unknown_axis_of_what_is_held_fixed_is_refused() -> None:
    """Cases are looked at as well as sides, those held against too, and checks."""
    odd = {"mode": "load", "storage": "png"}
    a, b = {"num_workers": 0}, {"num_workers": 2}
    for effect in (pair(a, b, odd), pair(a, b, {"mode": "load"}, against=[odd])):
        assert "claim one: unknown axis 'storage'" in refused(claim(effect))
    assert "claim one: unknown axis 'chek'" in refused(claim(None, facts=({"chek": "next_epoch"},)))


def test_an_unknown_value_is_refused() -> None:
    """As in matrix.yaml: what was found, what was expected, the nearest name; and no value of another type."""
    message = refused(claim(pair({"storage_format": "png"}, {"storage_format": "lmbd"}, {"mode": "load"})))
    assert message.startswith("suites/x.py: claim one: storage_format: unknown format 'lmbd'; expected one of ")
    assert message.endswith("(did you mean 'lmdb'?)")
    message = refused(claim(pair({"num_workers": 0}, {"num_workers": "2"}, {"mode": "load"})))
    assert message == "suites/x.py: claim one: num_workers: got '2'; expected a whole number"
    message = refused(claim(None, facts=({"check": "next_epok"},)))
    assert "claim one: check: unknown check 'next_epok'; expected one of " in message


def test_an_unknown_metric_is_refused() -> None:
    """The complaint names the nearest one; numbers beside a claim are looked at too."""
    odd = pair({"num_workers": 0}, {"num_workers": 2}, {"mode": "load"}, metric="througput")
    for each in (claim(odd), claim(asides=(Aside("beside it", odd),))):
        message = refused(each)
        assert message.startswith("suites/x.py: claim one: unknown metric 'througput'; expected one of ")
        assert message.endswith("(did you mean 'throughput'?)")


def test_an_unknown_source_is_refused() -> None:
    """A claim names documents that are listed."""
    message = refused(claim(sources=("BOT", "TIP")))
    assert message == (
        "suites/x.py: claim one: unknown source 'TIP'; expected one of AIDA, API, BOT, IO, TIPS, field "
        "(did you mean 'TIPS'?)"
    )


def test_a_side_that_equals_the_other_is_refused() -> None:
    """Whether as it is written, or because what tells them apart does not apply."""
    message = refused(claim(pair({"num_workers": 2}, {"num_workers": 2}, {"mode": "load"})))
    assert message == (
        "suites/x.py: claim one: num_workers=2 and num_workers=2 are the same cell with mode=load on cpu; expected an "
        "A that differs from B"
    )
    message = refused(claim(pair({"prefetch_factor": 1}, {"prefetch_factor": 8}, {"mode": "load"})))
    assert "prefetch_factor=1 and prefetch_factor=8 are the same cell with mode=load on cpu" in message


def test_what_a_claim_needs_decides_where_its_sides_must_differ() -> None:
    """Pinning differs on CUDA alone: a claim that needs it is asked there, one that does not is refused."""
    pinning = pair({"pin_memory": False}, {"pin_memory": True}, {"mode": "train"})
    validate(claim(pinning, needs="cuda"), "suites/x.py")
    assert "are the same cell with mode=train on cpu" in refused(claim(pinning))


def test_a_claim_without_a_case_is_refused() -> None:
    """An effect needs something to hold fixed, and two sides."""
    none = pair({"num_workers": 0}, {"num_workers": 2})
    assert refused(claim(none)) == "suites/x.py: claim one: got 0 cases of 2 sides; expected one of two"
    single = Effect(((1.0, {"num_workers": 2}),), ({"mode": "load"},))
    assert refused(claim(single)) == "suites/x.py: claim one: got 1 cases of 1 sides; expected one of two"


def test_a_claim_is_an_effect_or_a_fact() -> None:
    """Neither and both are refused."""
    wanted = "suites/x.py: claim one: expected either an effect or facts"
    assert refused(claim(None)) == wanted
    assert refused(claim(facts=({"check": "next_epoch"},))) == wanted


def test_a_suite_with_no_cell_that_can_run_is_refused(tmp_path: Path) -> None:
    """What needs a CUDA device sweeps nothing on a CPU, and says so."""
    asked = {part["device"] for each in suite.load("transfer").claims for part in slices_of([each])}
    assert asked == {"cuda"}
    wanted = matrix.load(plugins.ROOT / "matrix.yaml", only="transfer")
    with pytest.raises(InputError, match=r"no cell can run here: \d+ × wanted on cuda only; this machine has cpu"):
        expanding.expand(wanted, schedule.Place("cpu", tmp_path))


@given(
    st.lists(st.integers(1, 4096), min_size=3, max_size=6, unique=True).map(sorted),
    st.floats(-2, 2),
    st.floats(-5, 5),
)
def test_a_series_is_fitted_by_least_squares(values: list[int], exponent: float, level: float) -> None:
    """Metrics on a power law give 2 to its exponent, whatever their level; for a doubling of the axis."""
    effect = slope("batch_size", values, {"mode": "load"})
    logs = [level + exponent * math.log(value) for value in values]
    fitted = sum(weight * log for (weight, _), log in zip(effect.steps, logs, strict=True))
    assert fitted == pytest.approx(exponent * math.log(2), abs=1e-9)


@given(st.integers(1, 4), st.integers(0, 3))
def test_weights_add_up_to_nothing(cases: int, against: int) -> None:
    """A machine that is faster in all cells by the same factor changes no effect; each cell is listed once."""
    held: list[Values] = [{"mode": "load", "batch_size": 8 * (case + 1)} for case in range(cases + against)]
    effect = pair({"num_workers": 0}, {"num_workers": 2}, *held[:cases], against=held[cases:])
    found = terms(effect, "cpu")
    assert sum(term.weight for term in found) == pytest.approx(0)
    assert len({term.cell_id for term in found}) == len(found) == 2 * (cases + against)
    plus = sum(term.weight for term in found if term.weight > 0)
    assert plus == pytest.approx(1 + bool(against))


def test_photographs_stand_in_for_div2k() -> None:
    """A claim that names div2k has its cells on whichever photographs a run has."""
    real, _ = cell_on({"workload": "div2k"}, "cpu")
    swapped, _ = cell_on({"workload": "div2k"}, "cpu", "folder")
    assert (real["workload"], swapped["workload"]) == ("div2k", "folder")
    assert cell_id(real) != cell_id(swapped)
    other, _ = cell_on({"workload": "synthetic"}, "cpu", "folder")
    assert other["workload"] == "synthetic"


def test_why_a_claim_cannot_be_tested() -> None:
    """By what it needs, by an axis that does not apply; not because of a value that is the default anyway."""
    assert untestable(claim(), "cpu") is None
    pinning = claim(pair({"pin_memory": False}, {"pin_memory": True}, {"mode": "train"}))
    assert untestable(pinning, "cpu") == "pin_memory: no CUDA device here"
    needs = dataclasses.replace(pinning, needs="cuda")
    assert untestable(needs, "cpu") == "needs a CUDA device"
    assert untestable(needs, "cuda") is None
    assert untestable(dataclasses.replace(pinning, needs="gpus"), "cpu") == "needs two CUDA devices"
    assert "DATA_ROOT=" in str(untestable(claim(needs="disks"), "cuda"))
    assert "several machines" in str(untestable(claim(needs="machines"), "cpu"))


def test_slices_are_the_cells_of_all_effects() -> None:
    """Sides of cases, of cases held against, and of numbers beside it; checks; on CUDA alone where it needs that."""
    beside = Aside("more", pair({"num_workers": 0}, {"num_workers": 4}, {"mode": "load"}))
    effect = pair({"num_workers": 0}, {"num_workers": 2}, {"mode": "load"}, against=[{"mode": "train"}])
    found = slices_of([claim(effect, asides=(beside,))])
    assert [(part["mode"], part["num_workers"]) for part in found] == [
        ("load", 0),
        ("load", 2),
        ("train", 0),
        ("train", 2),
        ("load", 0),
        ("load", 4),
    ]
    assert {part["device"] for part in slices_of([claim(needs="cuda")])} == {"cuda"}
    dearer = claim(asides=(dataclasses.replace(beside, needs="cuda"),))
    assert [part.get("device") for part in slices_of([dearer])] == [None, None, "cuda", "cuda"]
    assert slices_of([claim(None, facts=({"check": "next_epoch"},))]) == ({"mode": "check", "check": "next_epoch"},)
    assert slices_of([claim(needs="disks")]) == ()
