"""What people report as slow is blamed on the right place: scripts whose own clock tells where their time goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attaching import Place
from reports import COMMON, END, REPORTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("reports"))


@pytest.mark.parametrize("name", REPORTS)
def test_the_time_is_blamed_on_the_place_that_costs_it(name: str, place: Place) -> None:
    """The account adds up; its largest row that could go is the true one, as long as the script's clock says.

    The line that is named is the one that costs.
    """
    told = REPORTS[name]
    script = COMMON + told.script + ("" if "__main__" in told.script else END)
    path = place.folder / f"{name.replace(' ', '-')}.py"
    path.write_text(script)
    done = place.python(str(path))
    assert done.status == 0, done.err
    account, cause = place.report["account"], place.report["cause"]
    rows = {row: took / 1e9 for row, took in account["rows"].items()}
    assert sum(rows.values()) == pytest.approx(account["wall_ns"] / 1e9, rel=0.01)
    assert abs(rows.get("rest", 0)) < 0.01 * account["wall_ns"] / 1e9
    assert (cause["row"], cause["name"]) == (told.row, told.reason), done.err
    truth, wall = json.loads(done.out), account["wall_ns"] / 1e9
    clocked = sum(rows.get(row, 0) for row in (told.row, *told.clocked))
    assert clocked / wall == pytest.approx(truth / wall, abs=0.04), done.err
    if told.line:
        hottest = place.report["lines"][told.row][0]
        assert (Path(hottest["file"]), hottest["code"][-6:]) == (path, "# here"), done.err
