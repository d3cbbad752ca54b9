"""Files of others held against the rules in a process of its own, within caps that have room for the longest run."""

from __future__ import annotations

import inspect
import json
import os
import random
import shutil
import signal
from datetime import datetime
from pathlib import Path
from types import ModuleType

import many_runs
import pyarrow.parquet as pq
import pytest
from beside import times
from typer.testing import CliRunner

from feedrate.bench.session import Ended, run_command
from feedrate.cli import app
from feedrate.schema import redaction
from feedrate.schema.columns import TABLES
from feedrate.schema.plugins import ROOT
from feedrate.share.validation import admission, caps, guard, parquet
from feedrate.share.validation.findings import Refused
from feedrate.share.validation.guard import Gone, Guard
from feedrate.store import runs as store_runs

BOMBS = ("bombs/data_page/2032MB", "bombs/dictionary/1500MB")


def test_a_process_that_dies_is_replaced(valid: bytes, tmp_path: Path) -> None:
    """One process answers for many files; the file over which it died is refused; the next one gets another."""
    path = tmp_path / "trials.parquet"
    path.write_bytes(valid)
    with Guard() as asked:
        assert asked.check(path).valid
        process = asked._process
        assert process is not None
        assert asked.check(path).valid
        assert asked._process is process
        process.kill()
        assert "SIGKILL" in asked.check(path).findings[0].got
        assert asked.check(path).valid
        process = asked._process
    assert process is not None
    assert process.returncode is not None


def test_what_made_a_reader_fail_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its class and first line without folders, so that a package that is missing here is not read as a bad file."""
    with Guard() as asked:
        assert asked.ask({"judge": str(tmp_path)}) == {"failed": "KeyError: 'in_place'"}
    why = "ImportError: No module named 'scipy' \x1b[31m(/home/somebody/lib/scipy.so)"
    monkeypatch.setattr(Guard, "ask", lambda *_: {"failed": why})
    (finding,) = guard.check(tmp_path / "a\x1b[31mb.parquet").findings
    assert str(finding) == (
        """'a\\x1b[31mb.parquet': a reader failed over it ("ImportError: No module named 'scipy' (scipy.so)"); """
        "expected one that can be read within 60 seconds and 1024 MiB of memory (rule readable)"
    )
    assert guard.failure(ValueError("\nno such column\nID3: ...")) == "ValueError: no such column"
    assert len(guard.failure(ValueError("x" * 10_000))) < redaction.MOST + 20


@pytest.mark.slow
def test_a_question_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """A file that never ends, here a pipe with a reader only, is no plain file; one that is slow is given up."""
    os.mkfifo(tmp_path / "pipe")
    assert guard.check(tmp_path / "pipe").findings[0].rule == "plain_file"
    with Guard() as asked:
        asked.check(tmp_path / "pipe")
        assert asked._process
        asked._process.send_signal(signal.SIGSTOP)
        with pytest.raises(Gone, match=r"longer than 0\.1 s"):
            asked.ask({"judge": str(tmp_path), "in_place": False}, seconds=0.1)


@pytest.mark.slow
def test_memory_beyond_the_cap_refuses_the_file(run: Path, valid: bytes, corpus: ModuleType, tmp_path: Path) -> None:
    """Small files that ask for gigabytes are refused, alone and among others, which are looked at all the same."""
    good, bad = (tmp_path / name / run.parent.name / run.name for name in ("good", "bad"))
    shutil.copytree(run, good)
    shutil.copytree(run, bad)
    bombs = {name: data for name, data in corpus._bombs(valid, random.Random(3)) if name in BOMBS}
    assert set(bombs) == set(BOMBS)
    for data in bombs.values():
        (bad / "trials.parquet").write_bytes(data)
        found = admission.admit([good, bad])
        assert found.folders == (good,)
        assert found.refused[0].findings


def test_a_file_over_the_cap_is_not_read(tmp_path: Path) -> None:
    """A file of too many bytes is refused by its size."""
    large = tmp_path / "large.parquet"
    with large.open("wb") as file:
        file.write(b"PAR1")
        file.truncate(caps.FILE_BYTES.most + 1)
    assert guard.check(large).findings[0].rule == "file_bytes"


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/mem", "/"])
def test_devices_and_folders_are_no_files(path: str) -> None:
    """Nothing is read from what is no plain file."""
    assert guard.check(Path(path)).findings[0].rule in ("plain_file", "folder")


@pytest.mark.slow
def test_what_lies_below_a_folder_must_lie_in_its_place(results: list[Path]) -> None:
    """A copy under another machine is refused as soon as somebody says where runs lie; a run alone may lie anywhere."""
    folder = results[0].parents[1]
    copy = folder / "other-machine" / results[0].name
    shutil.copytree(results[0], copy)
    assert guard.check(copy).valid
    for found in (guard.check(copy, in_place=True), guard.check(copy, folder)):
        assert found.findings[0].rule == "place"
    refused = {found.path: found.findings[0].rule for found in guard.check_all([folder]) if not found.valid}
    assert refused[str(copy)] == "place"
    assert str(results[0]) not in refused


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
    assert {"rule", "where", "got", "expected"} == set(said["files"][1]["findings"][0])


def test_a_path_that_names_nothing_does_not_stop_the_others(results: list[Path], tmp_path: Path) -> None:
    """It is refused with its reason, also where machines read, and the exit status is that of refused files."""
    (tmp_path / "empty").mkdir()
    command = ["validate", str(tmp_path / "no"), str(results[0]), str(tmp_path / "empty")]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 2
    said = json.loads(done.stdout)
    assert (said["valid"], said["refused"]) == (1, 2)
    assert [each["valid"] for each in said["files"]] == [False, True, False]
    assert [said["files"][at]["findings"][0]["got"] for at in (0, 2)] == ["no such file", "holds no run"]
    assert "1 valid, 2 refused." in CliRunner().invoke(app, command).stdout


def test_the_longest_run_fits() -> None:
    """A day of trials, one a second, with as many steps as our own runs have, is within each cap on what is written."""
    assert inspect.signature(store_runs.journal_chunks).parameters["trials"].default == caps.GROUP_TRIALS
    steps = caps.TRIALS * caps.STEPS
    written = {
        caps.ROWS_OF["trials"]: caps.TRIALS,
        caps.ROWS_OF["steps"]: steps,
        caps.FILE_BYTES: steps * caps.STEP_BYTES,
        caps.DECODED_BYTES: steps * caps.STEP_DECODED,
        caps.COLUMNS: caps.WIDEST,
        caps.ROW_GROUPS: caps.GROUPS,
        caps.FOOTER_BYTES: caps.GROUPS * caps.WIDEST * caps.CHUNK_FOOTER_BYTES + caps.MANIFEST_BYTES.most,
        caps.PAGES: caps.GROUPS * caps.WIDEST * 2,
    }
    assert [cap.name for cap, most in written.items() if cap.exceeded(most)] == []


def test_each_of_our_own_runs_could_last_a_day() -> None:
    """Had any run under results gone on for a day, no cap would refuse it."""
    runs = store_runs.runs(ROOT / "results")
    assert runs
    for run in runs:
        begun, ended = map(datetime.fromisoformat, (run.manifest.started_at, run.manifest.ended_at))
        times = 24 * 3600 / (ended - begun).total_seconds()
        for name in TABLES:
            path = run.folder / f"{name}.parquet"
            metadata = pq.read_metadata(path)
            groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
            chunks = [group.column(at) for group in groups for at in range(metadata.num_columns)]
            assert times * metadata.num_rows <= caps.ROWS_OF[name].most
            assert times * path.stat().st_size <= caps.FILE_BYTES.most
            assert times * sum(chunk.total_uncompressed_size for chunk in chunks) <= caps.DECODED_BYTES.most
            assert times * metadata.num_row_groups <= caps.ROW_GROUPS.most


def test_each_table_has_a_cap_of_its_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are many more than trials: more of them than of trials are accepted, and no more than their own cap."""
    few = caps.Cap("rows", 1, "rows", "a test")
    monkeypatch.setitem(caps.ROWS_OF, "trials", few)
    with pytest.raises(Refused, match="at most 1 rows"):
        parquet.open_table((run / "trials.parquet").read_bytes(), "trials", "trials.parquet")
    assert parquet.open_table((run / "steps.parquet").read_bytes(), "steps", "steps.parquet").count > 1


@pytest.mark.slow
def test_time_grows_as_rows_do_and_memory_has_an_end(tmp_path: Path) -> None:
    """A million trials take at most ten times as long as a hundred thousand (2.8 to 3.6 was seen), and below 1 GB."""
    many_runs.write(tmp_path / "one", 1)
    (one,) = (tmp_path / "one").glob("*/*/trials.parquet")
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    many_runs.write_repeated(one, 100_000, small)
    many_runs.write_repeated(one, 1_000_000, large)
    peaks: list[int] = []

    def validated(path: Path, rows: int, *, memory: bool = False) -> Ended:
        ended = run_command("validate", str(path), "--json", memory=memory)
        (file,) = json.loads(ended.stdout)["files"]
        assert (file["rows"], file["findings"]) == (rows, [])
        return ended

    def whole() -> float:
        ended = validated(large, 1_000_000, memory=True)
        peaks.append(ended.peak_bytes or 0)
        return ended.took_s

    assert times(whole, lambda: validated(small, 100_000).took_s, 10) <= 10
    assert 1e8 < max(peaks) < 1e9
