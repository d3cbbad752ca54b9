"""results/: the journal, and runs written whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import registry, store
from harness.errors import EnvironmentFault, InputError


def test_a_torn_line_costs_that_line_only(tmp_path: Path) -> None:
    """What was appended before a crash in the middle of a write is read back, and appending goes on."""
    journal = store.Journal(tmp_path)
    journal.append({"n": 1})
    journal.append({"n": 2})
    journal.close()
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"n": 3, "tor')
    again = store.Journal(tmp_path)
    assert [e["n"] for e in again.entries()] == [1, 2]
    again.append({"n": 4})
    assert [e["n"] for e in again.entries()] == [1, 2, 4]
    again.close()


def test_a_journal_that_is_only_torn_is_empty(tmp_path: Path) -> None:
    """A crash within the very first line leaves a journal that can be used."""
    (tmp_path / "journal.jsonl").write_bytes(b'{"n"')
    journal = store.Journal(tmp_path)
    assert list(journal.entries()) == []
    journal.close()


def test_a_full_disk_is_a_message(tmp_path: Path) -> None:
    """ENOSPC while a trial is written names the file, the cause and what to do; nothing before it is lost."""
    (tmp_path / "journal.jsonl").symlink_to("/dev/full")
    journal = store.Journal.__new__(store.Journal)
    journal.path = tmp_path / "journal.jsonl"
    journal._file = journal.path.open("ab", buffering=0)
    with pytest.raises(EnvironmentFault, match=r"journal\.jsonl: cannot write: the disk is full.*resumes"):
        journal.append({"n": 1})
    journal.close()


def test_two_sweeps_at_once_are_refused(tmp_path: Path) -> None:
    """The second sweep on a machine is told which process holds the first."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom harness import store\n"
        f"with store.machine_lock(Path({str(tmp_path)!r}), 'm'):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=registry.ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        words = rf"another sweep is running here \(process {other.pid}\)"
        with pytest.raises(InputError, match=words), store.machine_lock(tmp_path, "m"):
            pass
        other.kill()
    with store.machine_lock(tmp_path, "m") as folder:
        assert folder == tmp_path / "m"


def test_an_unwritable_place_is_a_message(tmp_path: Path) -> None:
    """Results that cannot be written are refused before anything is measured."""
    (tmp_path / "results").write_text("a file")
    with pytest.raises(EnvironmentFault, match="cannot write"), store.machine_lock(tmp_path / "results", "m"):
        pass


def test_an_unfinished_run_is_found_and_a_discarded_one_is_gone(tmp_path: Path) -> None:
    """A run that began and did not end can be resumed."""
    folder = store.begin(tmp_path, "r1", {"key": "k"})
    assert [(p.name, plan["key"]) for p, plan in store.unfinished(tmp_path)] == [("r1", "k")]
    store.discard(folder)
    assert store.unfinished(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_broken_manifest_is_named(tmp_path: Path) -> None:
    """A run.json that cannot be understood is an error that names the file, not a traceback."""
    folder = tmp_path / "m" / "r"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"schema_version": 1}))
    with pytest.raises(InputError, match=r"run\.json: not a run manifest"):
        store.runs(tmp_path)


def test_write_is_whole_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while a file is written leaves the old one."""
    path = tmp_path / "run.json"
    store._write_whole(path, b"old")

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        store._write_whole(path, b"new")
    assert path.read_bytes() == b"old"
