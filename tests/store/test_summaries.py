"""Summaries grow by what is new, however often a writer is killed, and no answer depends on how they lie on disk."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from feedrate.schema.errors import InputError
from feedrate.store import dataset, marks, summaries
from feedrate.store.marks import REFERENCE, SELF_REPORTED
from feedrate.store.migration import arrow_schema
from feedrate.store.summaries import Added, Summary

EVERYTHING = "SELECT machine_id, run_id, cell_id, samples_per_s, tier FROM cells ORDER BY ALL"


class Killed(BaseException):
    """What ends a writer between two steps."""


class Store:
    """Folders of runs that hold nothing; counts how often each is summarised, two cells a run."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.opened: Counter[str] = Counter()
        self.refused: set[str] = set()

    def put(self, machine: str, *runs: str) -> None:
        for run in runs:
            folder = self.results / machine / run
            folder.mkdir(parents=True)
            (folder / "run.json").touch()

    def run(self, machine: str, run: str) -> Path:
        return self.results / machine / run

    def summarise(self, folders: Sequence[Path]) -> Summary:
        self.opened.update(folder.name for folder in folders)
        said = [
            {
                "machine_id": folder.parent.name,
                "run_id": folder.name,
                "started_at": f"{folder.name[:4]}-{folder.name[4:6]}-01T00:00:00+00:00",
                "cpu": f"CPU of {folder.parent.name}",
            }
            for folder in folders
            if folder.name not in self.refused
        ]
        cells = [{**run, "cell_id": f"{at}", "samples_per_s": 100.0 + at} for run in said for at in range(2)]
        return Summary(
            pa.Table.from_pylist(cells, arrow_schema(summaries.CELLS)),
            pa.Table.from_pylist(said, arrow_schema(summaries.RUNS)),
        )

    def add(self) -> Added:
        return summaries.add(self.summarise, self.results)

    def rows(self) -> list[dict[str, Any]]:
        return summaries.query(EVERYTHING, results=self.results).to_pylist()

    def runs(self) -> list[str]:
        return sorted({row["run_id"] for row in self.rows()})

    def age(self) -> None:
        """Let all that happened so far be an hour ago."""
        for folder in self.results.iterdir():
            os.utime(folder, ns=(time.time_ns(), folder.stat().st_mtime_ns - 3600 * 10**9))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two machines with three runs in two months."""
    made = Store(tmp_path / "results")
    made.put("a", "202601-1", "202602-2")
    made.put("b", "202602-3")
    return made


def test_only_what_is_new_is_opened(store: Store) -> None:
    """Each run is summarised once, whenever it comes; without a new one nothing is written."""
    assert store.add() == Added(runs=3)
    assert store.add() == Added()
    store.put("b", "202603-4")
    store.put("c", "202603-5")
    assert store.add() == Added(runs=2)
    assert set(store.opened.values()) == {1}
    assert store.runs() == ["202601-1", "202602-2", "202602-3", "202603-4", "202603-5"]
    assert len(store.rows()) == 10


def test_a_folder_that_did_not_change_is_not_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of machines whose folder has not changed since, not even the names of runs are read."""
    listed: list[str] = []
    look = summaries._look
    monkeypatch.setattr(summaries, "_look", lambda folder, known: listed.append(folder.name) or look(folder, known))
    store.age()
    store.add()
    store.put("b", "202603-4")
    store.add()
    store.age()
    store.add()
    assert listed == ["a", "b", "b", "a", "b"]
    files = sorted((store.results / "summaries").rglob("*"))
    store.add()
    assert listed == ["a", "b", "b", "a", "b"]
    assert sorted((store.results / "summaries").rglob("*")) == files


def test_a_run_that_ends_later_is_found(store: Store) -> None:
    """A folder without run.json is looked at again: its end does not change the time of the machine's folder."""
    folder = store.run("a", "202603-4")
    folder.mkdir()
    store.age()
    assert store.add().runs == 3
    (folder / "run.json").touch()
    assert store.add() == Added(runs=1)


def test_marks_count_without_opening_the_run(store: Store) -> None:
    """A run that is withdrawn, removed or beside which a file is damaged has no rows; its tier is the newest."""
    store.age()
    store.add()
    marks.set_tier(store.run("a", "202601-1"), REFERENCE)
    marks.withdraw(store.run("a", "202602-2"), "the disk was failing")
    marks.place(store.run("b", "202602-3"), "label").write_text("no JSON")
    assert store.add() == Added(marked=3)
    assert {(row["run_id"], row["tier"]) for row in store.rows()} == {("202601-1", REFERENCE)}
    marks.place(store.run("b", "202602-3"), "label").unlink()
    store.run("a", "202601-1").rename(store.results / "elsewhere")
    assert store.add().marked == 2
    assert store.runs() == ["202602-3"]
    for tier in (REFERENCE, SELF_REPORTED):
        marks.set_tier(store.run("b", "202602-3"), tier)
        assert store.add() == Added(marked=1)
        assert {row["tier"] for row in store.rows()} == {tier}
    assert set(store.opened.values()) == {1}


def test_a_machine_that_is_gone_takes_its_runs_along(store: Store) -> None:
    """Rows of runs whose machine's folder was removed are hidden, once."""
    store.add()
    store.run("b", "202602-3").joinpath("run.json").unlink()
    store.run("b", "202602-3").rmdir()
    (store.results / "b").rmdir()
    assert store.add() == Added(marked=1)
    assert store.runs() == ["202601-1", "202602-2"]
    assert store.add() == Added()


def test_a_refused_run_is_tried_again(store: Store) -> None:
    """A run that was left out has no rows, and is asked for again until it has."""
    store.refused = {"202602-3"}
    store.age()
    assert store.add() == Added(runs=2, left_out=1)
    assert store.add() == Added(left_out=1)
    store.refused = set()
    assert store.add() == Added(runs=1)
    assert store.opened["202602-3"] == 3
    assert len(store.rows()) == 6


def killed_at(step: int, after: bool, patch: pytest.MonkeyPatch) -> None:
    """Let the next writer be killed before or after its n-th change of the disk."""
    steps = iter(range(step + 1))

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def act(*values: Any, **more: Any) -> Any:
            last = next(steps) == step
            if last and not after:
                raise Killed
            done = change(*values, **more)
            if last:
                raise Killed
            return done

        return act

    for name in ("replace", "unlink"):
        patch.setattr(Path, name, dying(getattr(Path, name)))


def killed_everywhere(act: Callable[[int], object]) -> Iterator[int]:
    """Do something, which is told how often it was tried, killed at each of its steps in turn until it has no more."""
    for tries in range(100):
        with pytest.MonkeyPatch.context() as patch:
            killed_at(tries // 2, bool(tries % 2), patch)
            try:
                act(tries)
            except Killed:
                pass
            else:
                return
        yield tries
    raise AssertionError("never came to its end")


def test_a_writer_may_be_killed_between_any_two_steps(tmp_path: Path) -> None:
    """Whenever it is killed, rows are those of before or of after, and the next writer makes them complete."""
    stores = [Store(tmp_path / f"{number}") for number in range(30)]
    for store in stores:
        store.put("a", "202601-1", "202602-2")
        store.add()
        store.put("b", "202602-3")
        marks.set_tier(store.run("a", "202602-2"), REFERENCE)
    before = stores[-1].rows()
    stores[-1].add()
    after = stores[-1].rows()
    assert len(after) == len(before) + 2
    kills = 0
    for tries in killed_everywhere(lambda tries: stores[tries].add()):
        assert stores[tries].rows() in (before, after)
        stores[tries].add()
        assert stores[tries].rows() == after
        kills += 1
    assert kills == 2 * 5  # cells, runs, marks and machines of a month, and the commit


def test_merging_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small files become one of each month, killed wherever; questions get the same rows at any moment."""
    monkeypatch.setattr(dataset, "MANY", 3)
    monkeypatch.setattr(dataset, "GROUP_ROWS", 3)
    store = Store(tmp_path)
    for at in range(5):
        store.put("a", f"202601-{at}")
        store.put("b", f"20260{1 + at % 2}-{at}b")
        store.add()
        marks.set_tier(store.run("a", f"202601-{at}"), REFERENCE)
    store.add()
    before, files = store.rows(), len(list(tmp_path.rglob("*.parquet")))
    assert len(before) == 20
    for _ in killed_everywhere(lambda _: summaries.compact(tmp_path)):
        assert store.rows() == before
    assert store.rows() == before
    assert summaries.compact(tmp_path) == 0
    assert len(list(tmp_path.rglob("*.parquet"))) < files / 2
    store.put("c", "202601-9")
    assert store.add() == Added(runs=1)
    assert len(store.rows()) == 22


def test_the_newest_runs_and_those_of_reference_are_shown(store: Store) -> None:
    """Folders come oldest first; a reference run stays however old, and a withdrawn one, to say why."""
    store.put("c", "202604-6", "202605-7")
    store.add()
    assert [path.name for path in summaries.newest(2, store.results)] == ["202604-6", "202605-7"]
    marks.set_tier(store.run("a", "202601-1"), REFERENCE)
    marks.withdraw(store.run("c", "202605-7"), "the disk was failing")
    store.run("c", "202604-6").rename(store.results / "elsewhere")
    store.add()
    assert [path.name for path in summaries.newest(2, store.results)] == ["202601-1", "202605-7"]


def test_rows_made_elsewhere_are_not_looked_for(store: Store) -> None:
    """Runs whose rows were put are known, and their machine's folder is listed when it changes."""
    store.age()
    folders = [store.run("a", "202601-1"), store.run("a", "202602-2")]
    made = store.summarise(folders)
    summaries.put(made, {"a": (store.results / "a").stat().st_mtime_ns}, store.results)
    assert len(store.rows()) == 4
    assert store.add() == Added(runs=1)
    assert len(store.rows()) == 6


def test_summaries_of_another_version_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message names the folder to remove; nothing is guessed."""
    store.add()
    monkeypatch.setattr(dataset, "FORMAT", 3)
    with pytest.raises(InputError, match="format 2; expected 3"):
        store.add()


def test_a_store_without_summaries_has_no_rows(tmp_path: Path) -> None:
    """A question to it is answered, and nothing is written."""
    assert not summaries.kept(tmp_path)
    assert summaries.query("SELECT * FROM runs", results=tmp_path).num_rows == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_adding_does_not_slow_down_with_the_store(tmp_path: Path) -> None:
    """The same 50 runs cost a store of 20,000 runs, 40,000 rows, at most five times what they cost one of 1,000."""
    took = []
    for machines in (100, 2_000):
        store = Store(tmp_path / f"{machines}")
        for machine in range(machines):
            store.put(f"m{machine}", *(f"2026{1 + run:02d}-{machine}" for run in range(10)))
        store.age()
        store.add()
        for machine in range(50):
            store.put(f"m{machine}", f"202612-{machine}n")
        store.opened.clear()
        begun = time.process_time()
        assert store.add() == Added(runs=50)
        took.append(time.process_time() - begun)
        assert store.opened.total() == 50
    assert took[1] <= 5 * took[0]
