"""Validation tells of every path that it was given, in words and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from feedrate.cli import app
from feedrate.share import terminal as share_terminal
from feedrate.share.validation.findings import Finding, Validated


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that keeps every rule (tests/incoming has the rules) and looks odd."""
    path = tmp_path / "trials.parquet"
    path.touch()
    flag = Finding("fast", "flag", "samples_per_s", "9", "at most 4")
    told = Validated(str(path), None, "20260202T000000Z-bbbb", "xeon-2", 1, (flag,))
    monkeypatch.setattr(share_terminal.check, "check_all", lambda paths, _: (told for _ in paths))
    return path


def test_a_path_that_names_nothing_does_not_stop_the_others(run: Path, tmp_path: Path) -> None:
    """It is refused with its reason, also where machines read, and the exit status is that of refused files."""
    (tmp_path / "empty").mkdir()
    for more in ([], ["--json"]):
        done = CliRunner().invoke(app, ["validate", str(tmp_path / "no"), str(run), str(tmp_path / "empty"), *more])
        assert done.exit_code == 2
        if more:
            said = json.loads(done.stdout)
            assert (said["valid"], said["refused"]) == (1, 2)
            assert [each["valid"] for each in said["files"]] == [False, False, True]
            assert said["files"][0]["findings"][0]["got"] == "no such file"
            assert said["files"][1]["findings"][0]["got"] == "holds no run"
        else:
            assert "1 valid, 2 refused." in done.stdout


def test_what_is_odd_is_held_against_what_is_usual(run: Path, tmp_path: Path) -> None:
    """A flag says what was found and what others have; counts agree with their nouns."""
    printed = Console(file=io.StringIO(), width=200)
    share_terminal.validate([run], tmp_path, printed)
    assert isinstance(printed.file, io.StringIO)
    said = printed.file.getvalue()
    assert "of xeon-2, 1 trial, 1 flag for a reviewer" in said
    assert "samples_per_s: 9\n    usual: at most 4 (rule fast)" in said
