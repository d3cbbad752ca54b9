"""What people report as slow is blamed on the right place: scripts whose own clock tells where their time goes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from reports import COMMON, END, REPORTS

from feedrate.attach import run
from feedrate.bench import accounted

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", REPORTS)
def test_the_time_is_blamed_on_the_place_that_costs_it(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The largest row that could go and its line are the true ones, as long as the script's clock says."""
    expected = REPORTS[name]
    script = tmp_path / "train.py"
    script.write_text(COMMON + expected.script + ("" if "__main__" in expected.script else END))
    ended = run.run([sys.executable, str(script)])
    out, err = capfd.readouterr()
    assert ended.returncode == 0, err
    account, cause, lines = ended.report.account, ended.report.cause, ended.report.lines
    assert account is not None
    assert cause is not None
    assert sum(account.rows.values()) == pytest.approx(account.wall_ns, rel=0.01)
    assert abs(account.rows.get("rest", 0)) < 0.01 * account.wall_ns
    assert (cause.row, cause.name) == (expected.row, expected.reason), account
    clocked = sum(account.rows.get(row, 0) for row in (expected.row, *expected.clocked))
    assert clocked / account.wall_ns == pytest.approx(1e9 * json.loads(out) / account.wall_ns, abs=0.04), account
    if expected.line:
        hottest = lines[expected.row][0]
        assert (Path(hottest.file), hottest.code[-6:]) == (script, "# here"), lines


def test_time_in_many_rows_is_told_apart(tmp_path: Path) -> None:
    """What is planted in five rows of one script is in each of them, and on its line."""
    source = Path(shutil.copy(accounted.SOURCE, tmp_path))
    plan = {"between_steps": 5.0, "here": 1.0, "checkpoint": 200.0, "evaluation": 200.0, "between_epochs": 200.0}
    script = accounted.watch(source, plan, computes=False, steps=80, epochs=3)
    assert script.largest == script.cause == "between_steps"
    assert script.rest_share < 0.01
    for row in script.rows.values():
        assert row.said == pytest.approx(row.truth, abs=0.03)
    assert min(line.said for line in script.lines.values()) > 0.5
