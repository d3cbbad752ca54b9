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
    """The account adds up, each row takes as long as the script's clock says, and its costliest line is named."""
    path = place.folder / f"{name.replace(' ', '-')}.py"
    path.write_text(COMMON + REPORTS[name].script + END)
    done = place.python(str(path))
    assert done.status == 0, done.err
    account, cause = place.report["account"], place.report["cause"]
    shares = {row: took / account["wall_ns"] for row, took in account["rows"].items()}
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)
    assert abs(shares.get("rest", 0)) < 0.01
    truth = {rows: 1e9 * seconds / account["wall_ns"] for rows, seconds in json.loads(done.out).items()}
    assert {rows: sum(shares.get(row, 0) for row in rows.split()) for rows in truth} == pytest.approx(truth, abs=0.04)
    assert cause["name"] == REPORTS[name].cause, done.err
    assert cause["numbers"]["preparing"] > 0, "batches are seen where they are prepared, in spawned workers, too"
    assert cause["row"] in max(truth, key=lambda rows: truth[rows]).split()
    hottest = {row: (Path(lines[0]["file"]), lines[0]["code"]) for row, lines in place.report["lines"].items()}
    for line in path.read_text().splitlines():
        if "  # here: " in line:
            assert hottest[line.rpartition(" ")[2]] == (path, line.strip()), done.err
