"""What feedrate run says of rows and lines is held against scripts with time planted in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from feedrate.attach.account import ROWS
from feedrate.bench import account, scripts
from feedrate.store.bench_record import AccountedScript, Told

EXACT = Told(said=0.5, truth=0.5)


def script(**changes: Any) -> AccountedScript:
    """A script that waits for half of the time, of which feedrate says so."""
    right: dict[str, Any] = {"planted": {"waiting": 20.0}, "computes": False, "num_workers": 2, "rest_share": 0.0}
    right |= {"largest": "waiting", "cause": "waiting", "rows": {"waiting": EXACT}, "lines": {"waiting": EXACT}}
    return AccountedScript(**(right | changes))


def test_rows_are_planted_alone_and_together() -> None:
    """Each of at least 40 scripts has one or two; every planted row is one of the account's, and of several scripts."""
    planned = account.planned()
    assert len(planned) >= 40
    assert {len(plan) for plan, _ in planned} == {1, 2}
    assert account.PLANTED.keys() <= ROWS.keys()
    counts = {row: sum(row in plan for plan, _ in planned) for row in account.PLANTED}
    assert min(counts.values()) >= 2
    assert {computes for _, computes in planned} == {False, True}


@pytest.mark.parametrize(
    ("off", "missed"),
    [
        ({}, []),
        ({"rest_share": 0.02}, [0]),
        ({"largest": "forward"}, [1]),
        ({"cause": "sampler"}, [2]),
        ({"rows": {"waiting": Told(said=0.46, truth=0.5)}}, [3]),
        ({"lines": {"waiting": Told(said=0.0, truth=0.5)}}, [4]),
        ({"rows": {"waiting": EXACT, "forward": Told(said=0.49, truth=0.49)}, "largest": "forward"}, []),
        ({"rows": {"forward": EXACT}, "largest": "forward", "cause": "starting"}, []),
    ],
)
def test_what_is_off_misses_its_target(off: dict[str, Any], missed: list[int]) -> None:
    """One script of ten that is off, and no other target; of two rows as large either is right."""
    figures = list(account.judge([*[script()] * 9, script(**off)]))
    assert [place for place, figure in enumerate(figures) if not figure.met] == missed


@pytest.mark.slow
@pytest.mark.parametrize("computes", [False, True])
def test_a_planted_script_is_accounted_for(computes: bool, tmp_path: Path) -> None:
    """A real one with time in two rows: what feedrate says of both is what the script's own clock says."""
    found = account.watch(scripts.Planted(tmp_path), {"sampler": 6.0, "backward": 4.0}, computes=computes, steps=80)
    assert (found.largest, found.cause) == ("sampler", "sampler")
    assert found.rest_share < 0.01
    for told in found.rows.values():
        assert told.said == pytest.approx(told.truth, abs=0.05)
    assert min(line.said for line in found.lines.values()) > 0.5
