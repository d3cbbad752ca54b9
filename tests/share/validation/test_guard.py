"""The process that reads files of others: what kills it refuses a file, and touches nothing else."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.schema import redaction
from feedrate.share.validation import admission, caps, check, guard
from feedrate.share.validation.guard import Gone, Guard

BOMBS = ("bombs/data_page/2032MB", "bombs/dictionary/1500MB")


def question(path: Path) -> guard.Answer:
    return {"judge": str(path), "in_place": False}


def test_it_answers_and_ends(valid: bytes, tmp_path: Path) -> None:
    """One process answers for any number of files, and is gone afterwards."""
    path = tmp_path / "trials.parquet"
    path.write_bytes(valid)
    with Guard() as asked:
        for _ in range(2):
            assert asked.ask(question(path))["judged"]["valid"]
        process = asked._process
        assert process is not None
    assert process.returncode is not None


def test_a_process_that_dies_is_replaced(valid: bytes, tmp_path: Path) -> None:
    """The question over which it died has no answer; the next one has."""
    path = tmp_path / "trials.parquet"
    path.write_bytes(valid)
    with Guard() as asked:
        assert asked.ask(question(path))["judged"]["valid"]
        assert asked._process is not None
        asked._process.kill()
        with pytest.raises(Gone, match="SIGKILL"):
            asked.ask(question(path))
        assert asked.ask(question(path))["judged"]["valid"]


def test_what_made_a_reader_fail_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its class and first line without folders, so that a package that is missing here is not read as a bad file."""
    with Guard() as asked:
        failed = asked.ask({"judge": str(tmp_path)})
    assert failed == {"failed": "KeyError", "why": "'in_place'"}
    why = "No module named 'scipy' \x1b[31m(/home/somebody/lib/scipy.so)"
    monkeypatch.setattr(Guard, "ask", lambda *_: {"failed": "ImportError", "why": why})
    (refusal,) = check.check(tmp_path).refusals
    assert refusal.got == """a reader failed over it ("ImportError: No module named 'scipy' (scipy.so)")"""


def test_no_more_than_the_first_line_of_an_error_is_said() -> None:
    """And of a long one its beginning: libraries append what they read."""
    assert guard.failure(ValueError("\nno such column\nID3: ...")) == {"failed": "ValueError", "why": "no such column"}
    assert len(guard.failure(ValueError("x" * 10_000))["why"]) == redaction.MOST


@pytest.mark.slow
def test_a_question_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """A file that never ends, here a pipe with a reader only, is no plain file; one that is slow is given up."""
    os.mkfifo(tmp_path / "pipe")
    assert check.check(tmp_path / "pipe").refusals[0].rule == "plain_file"
    with Guard() as asked:
        asked.ask({"admit": {}})
        assert asked._process
        asked._process.send_signal(signal.SIGSTOP)
        with pytest.raises(Gone, match=r"longer than 0\.1 s"):
            asked.ask({"admit": {}}, seconds=0.1)


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
        assert found.refused[0].refusals


def test_a_file_over_the_cap_is_not_read(tmp_path: Path) -> None:
    """A file of too many bytes is refused by its size."""
    large = tmp_path / "large.parquet"
    with large.open("wb") as file:
        file.write(b"PAR1")
        file.truncate(caps.FILE_BYTES.most + 1)
    assert check.check(large).refusals[0].rule == "file_bytes"


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/mem", "/"])
def test_devices_and_folders_are_no_files(path: str) -> None:
    """Nothing is read from what is no plain file."""
    assert check.check(Path(path)).refusals[0].rule in ("plain_file", "folder")
