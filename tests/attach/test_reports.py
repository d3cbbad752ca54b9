"""What people report as slow is blamed on the right place: scripts whose own clock tells where their time goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from attaching import between
from reports import COMMON, END, REPORTS, TOGETHER

from feedrate.attach.facts import Outside
from feedrate.attach.report import Report, make
from feedrate.attach.run import run

pytestmark = pytest.mark.slow
SPAWNING = "spawn"
"""Its workers import the script that was started, so that it runs by itself."""


class Seen(NamedTuple):
    """A script, what was reported of it, and the seconds that its own clock counted by rows."""

    path: Path
    report: Report
    clock: Mapping[str, float]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Seen]:
    """Two processes below ``feedrate run``; of those scripts that run in one, each is reported as if it were alone."""
    folder = tmp_path_factory.mktemp("reports")
    paths = {name: folder / f"{name.replace(' ', '-')}.py" for name in REPORTS}
    for name, path in paths.items():
        path.write_text(COMMON + REPORTS[name].script + END)
    spawning = run([sys.executable, str(paths[SPAWNING])])
    together = run([sys.executable, "-c", TOGETHER, *(str(path) for name, path in paths.items() if name != SPAWNING)])
    assert (spawning.returncode, together.returncode) == (0, 0)
    reports = {}
    for name, path in paths.items():
        begun, ended, clock = json.loads(path.with_name(f"{path.name}.json").read_text())
        processes = [process for one in together.processes if len((process := between(one, begun, ended)).records)]
        stacks = [stack for stack in together.stacks if any(frame.file == str(path) for frame in stack.frames)]
        alone = spawning.report if name == SPAWNING else make(Report("", "", 0), processes, stacks, Outside(2), ended)
        reports[name] = Seen(path, alone, clock)
    return reports


@pytest.mark.parametrize("name", REPORTS)
def test_the_time_is_blamed_on_the_place_that_costs_it(name: str, seen: Mapping[str, Seen]) -> None:
    """The account adds up, each row takes as long as the script's clock says, and its costliest line is named."""
    path, report, clock = seen[name]
    account, cause = report.account, report.cause
    assert account is not None
    assert cause is not None
    shares = {row: took / account.wall_ns for row, took in account.rows.items()}
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)
    assert abs(shares.get("rest", 0)) < 0.01
    truth = {rows: 1e9 * seconds / account.wall_ns for rows, seconds in clock.items()}
    assert {rows: sum(shares.get(row, 0) for row in rows.split()) for rows in truth} == pytest.approx(truth, abs=0.04)
    assert cause.name == REPORTS[name].cause
    assert cause.numbers["preparing"] > 0, "batches are seen where they are prepared, in spawned workers, too"
    assert cause.row in max(truth, key=lambda rows: truth[rows]).split()
    hottest = {row: (Path(lines[0].file), lines[0].code) for row, lines in report.lines.items()}
    for line in path.read_text().splitlines():
        if "  # here: " in line:
            assert hottest[line.rpartition(" ")[2]] == (path, line.strip())
