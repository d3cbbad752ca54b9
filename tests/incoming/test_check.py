"""The command, and the door of the site: which runs are admitted, which are refused and why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from harness.cli import app, main
from harness.errors import InputError
from harness.incoming import check


@pytest.fixture
def results(fake_run: ModuleType, tmp_path: Path) -> Path:
    """Three runs of three machines, the second one with a number that cannot be."""
    for number in range(3):
        fake = fake_run.Fake(run_id=f"2026010{number + 1}T030405Z-fake", blocks=1, batches=(8,), cores=16 + number)
        fake_run.write(tmp_path / "results", fake)

    (folder,) = (tmp_path / "results").glob("*/20260102T030405Z-fake")

    data = bytearray((folder / "trials.parquet").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (folder / "trials.parquet").write_bytes(bytes(data))
    return tmp_path / "results"


def folders(results: Path) -> list[Path]:
    return check.found_at(results)


def test_an_invalid_run_is_left_out(results: Path, tmp_path: Path) -> None:
    """The others are admitted in their order; the one that is refused says why; both again from what is remembered."""
    every = folders(results)
    for _ in range(2):
        found = check.admitted(every, tmp_path / "build" / "checked.json")
        assert found.folders == (every[0], every[2])
        assert [refused.path for refused in found.refused] == [str(every[1])]
        assert found.refused[0].refusals


def test_what_is_remembered_is_the_content(results: Path, tmp_path: Path) -> None:
    """A run that passed and was changed afterwards is looked at again; a memory of other rules counts nothing."""
    every, memory = folders(results), tmp_path / "checked.json"
    assert every[0] in check.admitted(every, memory).folders
    held = json.loads(memory.read_text())
    assert len(held["passed"]) == 2
    (every[0] / "run.json").write_text("{}")
    assert check.admitted(every, memory).folders == (every[2],)
    for text in ("[]", json.dumps(held | {"rules": "others"})):
        memory.write_text(text)
        assert check.admitted(every, memory).folders == (every[2],)


def test_no_run_is_no_trouble(tmp_path: Path) -> None:
    """Nothing comes of nothing, and nothing is remembered where there is no place to."""
    assert check.admitted([]).folders == ()
    with pytest.raises(InputError, match="holds no run"):
        check.found_at(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        check.found_at(tmp_path / "nowhere")


def test_the_command_says_what_it_found(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid files leave with 0, refused ones with 2; --json says the same to machines."""
    every = folders(results)
    good = CliRunner().invoke(app, ["validate", str(every[0]), "--results", str(results)])
    assert good.exit_code == 0
    assert every[0].name in good.output
    both = CliRunner().invoke(app, ["validate", str(results), "--json", "--results", str(results)])
    assert both.exit_code == 2
    said = json.loads(both.output)
    assert (said["valid"], said["refused"]) == (2, 1)
    assert [one["valid"] for one in said["files"]] == [True, False, True]
    assert {"rule", "severity", "where", "got", "expected"} == set(said["files"][1]["findings"][0])
    monkeypatch.setattr("sys.argv", ["feedrate", "validate", str(results / "nowhere")])
    assert main() == 2


def test_a_link_to_a_run_is_not_followed(results: Path, tmp_path: Path) -> None:
    """A folder that is a link does not bring what it leads to onto the site."""
    real = folders(results)[0]
    link = results / real.parent.name / "20270101T000000Z-link"
    link.symlink_to(real)
    found = check.admitted(folders(results))
    assert link not in found.folders
    assert str(link) in {refused.path for refused in found.refused}
    shutil.rmtree(tmp_path / "results")
