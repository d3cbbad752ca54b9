"""The compact data set grows by what is new, whenever a writer is killed, and says what marks say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from feedrate.schema.errors import InputError
from feedrate.store import compact, marks
from feedrate.store.compact import CELLS, Appended
from feedrate.store.marks import REFERENCE, SELF_REPORTED
from feedrate.store.tables import arrow_schema

EVERYTHING = "SELECT machine_id, run_id, cell_id, samples_per_s, tier FROM cells ORDER BY ALL"


class Killed(BaseException):
    """What ends a writer."""


class Store:
    """Folders of runs that hold nothing; counts how often each is estimated, two cells a run."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.folder = results / compact.FOLDER
        self.opened: Counter[str] = Counter()
        self.refused: set[str] = set()

    def add(self, machine: str, *runs: str) -> None:
        for run in runs:
            self.run(machine, run).mkdir(parents=True)
            (self.run(machine, run) / "run.json").touch()

    def run(self, machine: str, run: str) -> Path:
        return self.results / machine / run

    def estimate(self, folders: Sequence[Path]) -> pa.Table:
        self.opened.update(folder.name for folder in folders)
        rows = [
            {
                "machine_id": folder.parent.name,
                "run_id": folder.name,
                "started_at": f"{folder.name[:4]}-{folder.name[4:6]}-01T00:00:00+00:00",
                "first": at == 0,
                "cell_id": f"{at}",
                "samples_per_s": 100.0 + at,
            }
            for folder in folders
            if folder.name not in self.refused
            for at in range(2)
        ]
        return pa.Table.from_pylist(rows, arrow_schema(CELLS))

    def append(self) -> Appended:
        return compact.append(self.estimate, self.results)

    def rows(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = compact.query(EVERYTHING, folder=self.folder).to_pylist()
        return rows

    def runs(self) -> list[str]:
        return sorted(compact.query("SELECT run_id FROM runs", folder=self.folder)["run_id"].to_pylist())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two machines with three runs in two years."""
    made = Store(tmp_path / "results")
    made.add("a", "202512-1", "202602-2")
    made.add("b", "202602-3")
    return made


def test_appending_twice_adds_nothing(store: Store) -> None:
    """Each run is opened once, whenever it comes; without a new one nothing is written."""
    assert store.append() == Appended(3, 0, 0)
    files = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*") if path.name != ".lock"}
    assert store.append() == Appended(0, 0, 0)
    assert {path: path.stat().st_mtime_ns for path in store.folder.rglob("*") if path.name != ".lock"} == files
    store.add("b", "202603-4")
    store.run("c", "202603-5").mkdir(parents=True)  # it has not ended
    assert store.append() == Appended(1, 0, 0)
    (store.run("c", "202603-5") / "run.json").touch()
    assert store.append() == Appended(1, 0, 0)
    assert set(store.opened.values()) == {1}
    assert store.runs() == ["202512-1", "202602-2", "202602-3", "202603-4", "202603-5"]
    assert len(store.rows()) == 10


def test_marks_count_without_opening_the_run(store: Store) -> None:
    """A run that is withdrawn, gone or beside which a file is damaged has no rows; its tier is the newest."""
    store.append()
    marks.set_tier(store.run("a", "202512-1"), REFERENCE)
    marks.withdraw(store.run("a", "202602-2"), "the disk was failing")
    marks.mark_file(store.run("b", "202602-3"), "label").write_text("no JSON")
    assert store.append() == Appended(0, 0, 2)
    assert {(row["run_id"], row["tier"]) for row in store.rows()} == {("202512-1", REFERENCE)}
    marks.mark_file(store.run("b", "202602-3"), "label").unlink()
    store.run("a", "202512-1").rename(store.results.parent / "elsewhere")
    assert store.append() == Appended(0, 0, 2)
    assert {(row["run_id"], row["tier"]) for row in store.rows()} == {("202602-3", SELF_REPORTED)}
    assert set(store.opened.values()) == {1}


def test_a_refused_run_is_tried_again(store: Store) -> None:
    """A run that was left out has no rows, and is asked for until it has."""
    store.refused = {"202602-3"}
    assert store.append() == Appended(2, 1, 0)
    store.refused = set()
    assert store.append() == Appended(1, 0, 0)
    assert len(store.rows()) == 6


@pytest.mark.slow
@pytest.mark.parametrize(("step", "many"), [("fsync", 32), ("replace", 2)], ids=["appended", "merged"])
def test_a_crash_leaves_the_old_state(step: str, many: int, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the commit, rows are those of before; the next writer completes them, and merges many files."""
    store.append()
    before = store.rows()
    store.add("b", "202603-4")
    monkeypatch.setattr(compact, "MANY", many)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(compact.os if step == "fsync" else Path, step, killed)
        with pytest.raises(Killed):
            store.append()
    assert len(list(store.folder.rglob("*.parquet"))) > 2
    (store.folder / "year=2026" / "torn.parquet").write_bytes(b"PAR1")
    assert store.rows() == before
    assert store.append() == Appended(1, 0, 0)
    assert len(store.rows()) == len(before) + 2
    store.append()
    assert len(list(store.folder.rglob("*.parquet"))) == (3 if many == 32 else 2)


def test_the_newest_runs_and_those_of_reference_are_shown(store: Store) -> None:
    """Folders come oldest first; a reference run stays however old, and a withdrawn one, to say why."""
    store.add("c", "202604-6", "202605-7")
    store.append()
    assert [path.name for path in compact.newest(2, store.results)] == ["202604-6", "202605-7"]
    marks.set_tier(store.run("a", "202512-1"), REFERENCE)
    marks.withdraw(store.run("c", "202605-7"), "the disk was failing")
    store.append()
    assert [path.name for path in compact.newest(2, store.results)] == ["202512-1", "202604-6", "202605-7"]


def test_a_data_set_of_another_version_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message names the folder to remove; nothing is guessed. Without a data set there are no rows."""
    assert store.rows() == []
    store.append()
    monkeypatch.setattr(compact, "FORMAT", 2)
    with pytest.raises(InputError, match=r"Remove .*compact"):
        store.append()
