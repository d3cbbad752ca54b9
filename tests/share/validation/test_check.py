"""The command that validates, and what it is given."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feedrate.cli import app
from feedrate.schema.errors import InputError
from feedrate.share.validation import check


@pytest.mark.slow
def test_what_lies_below_a_folder_must_lie_in_its_place(results: list[Path]) -> None:
    """A copy under another machine is refused as soon as somebody says where runs lie; a run alone may lie anywhere."""
    folder = results[0].parents[1]
    copy = folder / "other-machine" / results[0].name
    shutil.copytree(results[0], copy)
    assert check.check(copy).valid
    for found in (check.check(copy, in_place=True), check.check(copy, folder)):
        assert found.refusals[0].rule == "place"
    refused = {found.path: found.refusals[0].rule for found in check.check_all([folder]) if not found.valid}
    assert refused[str(copy)] == "place"
    assert str(results[0]) not in refused


def test_a_reader_that_fails_says_so_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file makes a reader do is said in plain words, then by the error; its name is shown as text."""
    monkeypatch.setattr(check.Guard, "ask", lambda *_: {"failed": "OverflowError", "why": ""})
    (finding,) = check.check(tmp_path / "a\x1b[31mb.parquet").refusals
    assert str(finding) == (
        "'a\\x1b[31mb.parquet': a reader failed over it ('OverflowError'); expected one that can be read within 60 "
        "seconds and 1024 MiB of memory (rule readable)"
    )


def test_what_names_nothing_is_said(tmp_path: Path) -> None:
    """An empty folder and a path that is not there are errors in words."""
    with pytest.raises(InputError, match="holds no run"):
        check.find_results(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        check.find_results(tmp_path / "nowhere")


def test_the_command_says_what_it_found(results: list[Path]) -> None:
    """Valid files leave with 0, refused ones with 2; --json says the same to machines."""
    folder = results[0].parents[1]
    good = CliRunner().invoke(app, ["validate", str(results[0]), "--results", str(folder)])
    assert good.exit_code == 0
    assert results[0].name in good.output
    both = CliRunner().invoke(app, ["validate", str(folder), "--json", "--results", str(folder)])
    assert both.exit_code == 2
    said = json.loads(both.output)
    assert (said["valid"], said["refused"]) == (2, 1)
    assert [one["valid"] for one in said["files"]] == [True, False, True]
    assert {"rule", "severity", "where", "got", "expected"} == set(said["files"][1]["findings"][0])
