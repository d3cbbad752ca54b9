"""The command, and the door of the site: which runs are admitted, which are refused and why."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from feedrate.cli import app
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.share.validation import admission, check, validator


@pytest.fixture
def results(fake_run: ModuleType, tmp_path: Path) -> Path:
    """Three runs of three machines, the second one with a number that cannot be."""
    for number in range(3):
        fake = fake_run.Fake(run_id=f"2026010{number + 1}T030405Z-fake", blocks=1, batches=(8,), cores=16 + number)
        fake_run.write(tmp_path / "results", fake)

    (folder,) = (tmp_path / "results").glob("*/20260102T030405Z-fake")
    rewritten(folder, lambda walls: [-1, *walls[1:]])
    return tmp_path / "results"


def rewritten(folder: Path, change: Callable[[list[int | None]], list[int | None]], **options: Any) -> None:
    """Write a run's trials anew, as they were but for the wall clocks of their windows."""
    table = pq.read_table(folder / "trials.parquet")
    place = table.schema.get_field_index("wall_ns")
    walls = pa.array(change(table["wall_ns"].to_pylist()), pa.int64())
    pq.write_table(table.set_column(place, "wall_ns", walls), folder / "trials.parquet", **options)


def folders(results: Path) -> list[Path]:
    return check.find_results(results)


def test_an_invalid_run_is_left_out(results: Path, tmp_path: Path) -> None:
    """The others are admitted in their order; the one that is refused says why; both again from what is remembered."""
    every = folders(results)
    for _ in range(2):
        found = admission.admit(every, tmp_path / "build" / "checked.json")
        assert found.folders == (every[0], every[2])
        assert [refused.path for refused in found.refused] == [str(every[1])]
        assert [finding.rule for finding in found.refused[0].refusals] == ["range"]


@pytest.mark.slow
def test_a_copy_in_another_place_is_refused_every_time(results: Path, tmp_path: Path) -> None:
    """Files that passed in their own place do not bring in a copy of them: not at once, not from what is remembered."""
    every = folders(results)
    copy = results / "other-machine" / every[0].name
    shutil.copytree(every[0], copy)
    linked = tmp_path / "linked" / every[0].parent.name
    linked.parent.mkdir()
    linked.symlink_to(every[0].parent)
    for _ in range(2):
        found = admission.admit([*every, copy, linked / every[0].name], tmp_path / "checked.json")
        assert found.folders == (every[0], every[2])
        assert [refused.refusals[0].rule for refused in found.refused] == ["range", "place", "place"]


def test_an_id_that_two_machines_claim_is_shown_of_neither(results: Path, fake_run: ModuleType, tmp_path: Path) -> None:
    """Pages are named for a run's id: nobody takes over another's page, and what is remembered changes nothing."""
    first, _, third = folders(results)
    forged = fake_run.write(results, fake_run.Fake(run_id=first.name, blocks=1, batches=(8,), cores=64))
    for _ in range(2):
        found = admission.admit([first, forged, third], tmp_path / "checked.json")
        assert found.folders == (third,)
        assert [refused.refusals[0].rule for refused in found.refused] == [admission.UNIQUE.name] * 2
        assert forged.parent.name in found.refused[0].refusals[0].got
    assert admission.admit([first, third]).folders == (first, third)


@pytest.mark.slow
def test_the_site_keeps_to_every_rule(valid: bytes, run: Path, corpus: ModuleType, tmp_path: Path) -> None:
    """Runs that are looked at together are let in where each alone is valid, whatever is wrong with the others."""
    with pa.BufferReader(valid) as file:
        table = pq.read_table(file)
    made = {"as it was": valid, "gzip": written(table, compression="gzip"), "small": written(table, data_page_size=64)}
    said = json.loads(table.schema.metadata[b"feedrate"]) | {"seed": 8}
    made["another run.json"] = written(table.replace_schema_metadata({b"feedrate": json.dumps(said).encode()}))
    made |= dict(zip(*zip(*itertools.islice(corpus.mutated(valid, 3), 0, 100, 3), strict=True), strict=True))
    every = []
    for at, data in enumerate(made.values()):
        every.append(tmp_path / str(at) / run.parent.name / run.name)
        shutil.copytree(run, every[-1])
        (every[-1] / "trials.parquet").write_bytes(data)
    alone = [folder for folder in every if validator.judge(folder, placed=True).valid]
    assert every[0] in alone
    assert every[1] not in alone
    for folder in every:
        assert (validator.clear([folder]) is not None) == (folder in alone)
    few = every[:3]
    assert [admission.admit([folder]).folders for folder in few] == [(folder,) * (folder in alone) for folder in few]


def written(table: pa.Table, **options: Any) -> bytes:
    """A file of these trials, as somebody else might write it."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


@pytest.mark.slow
def test_what_lies_below_a_folder_must_lie_in_its_place(results: Path) -> None:
    """A copy under another machine is refused as soon as somebody says where runs lie; a run alone may lie anywhere."""
    real = folders(results)[0]
    copy = results / "other-machine" / real.name
    shutil.copytree(real, copy)
    assert check.check(copy).valid
    assert [check.check(copy, placed=True).refusals[0].rule, check.check(copy, results).refusals[0].rule] == [
        "place"
    ] * 2
    refused = {found.path: found.refusals[0].rule for found in check.check_all([results]) if not found.valid}
    assert refused[str(copy)] == "place"
    assert str(real) not in refused


def test_the_rules_are_where_they_are_looked_for() -> None:
    """Every file of feedrate that the reader loads is hashed, so that no change of a rule is missed by what passed."""
    loaded = (
        "import sys; from pathlib import Path; from feedrate.share.validation import validator, guard; "
        "[validator.judge(Path(path)) for path in sys.argv[1:]]; "
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'feedrate'), sep='\\n')"
    )
    runs = [str(path) for path in (ROOT / "results").glob("*/*") if (path / "run.json").exists()][:2]
    told = subprocess.run([sys.executable, "-c", loaded, *runs], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {Path(line) for line in told.stdout.splitlines()}
    assert len(files) > 20
    assert {path.name for path in files - set(admission.rule_files())} == set()
    assert all(path.is_file() for path in admission.rule_files())


def test_a_reader_that_fails_says_so_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file makes a reader do is said in plain words, then by the error; its name is shown as text."""
    monkeypatch.setattr(check.Guard, "ask", lambda *_: {"failed": "OverflowError", "why": ""})
    (finding,) = check.check(tmp_path / "a\x1b[31mb.parquet").refusals
    assert str(finding) == (
        "'a\\x1b[31mb.parquet': a reader failed over it ('OverflowError'); expected one that can be read within 60 "
        "seconds and 1024 MiB of memory (rule readable)"
    )


@pytest.mark.slow
def test_what_is_remembered_is_the_content(results: Path, tmp_path: Path) -> None:
    """A run that passed and was changed afterwards is looked at again; a memory of other rules counts nothing."""
    every, memory = folders(results), tmp_path / "checked.json"
    assert every[0] in admission.admit(every, memory).folders
    held = json.loads(memory.read_text())
    assert len(held["passed"]) == 2
    (every[0] / "run.json").write_text("{}")
    assert admission.admit(every, memory).folders == (every[2],)
    for text in ("[]", json.dumps(held | {"rules": "others"})):
        memory.write_text(text)
        assert admission.admit(every, memory).folders == (every[2],)


def test_no_run_is_no_trouble(tmp_path: Path) -> None:
    """Nothing comes of nothing, and nothing is remembered where there is no place to."""
    assert admission.admit([]).folders == ()
    with pytest.raises(InputError, match="holds no run"):
        check.find_results(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        check.find_results(tmp_path / "nowhere")


def test_the_command_says_what_it_found(results: Path) -> None:
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
    nowhere = CliRunner().invoke(app, ["validate", str(results / "nowhere")])
    assert nowhere.exit_code == 2


@pytest.mark.slow
def test_a_link_to_a_run_is_not_followed(results: Path, tmp_path: Path) -> None:
    """A folder that is a link does not bring what it leads to onto the site."""
    real = folders(results)[0]
    link = results / real.parent.name / "20270101T000000Z-link"
    link.symlink_to(real)
    found = admission.admit(folders(results))
    assert link not in found.folders
    assert str(link) in {refused.path for refused in found.refused}
    shutil.rmtree(tmp_path / "results")
