"""What looks odd is flagged, told by what is usual, and refuses nothing; what cannot be told flags nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feedrate.share.validation import flags as validation_flags
from feedrate.share.validation import guard, validator
from feedrate.share.validation.findings import Finding
from feedrate.store import marks

KEY = b"feedrate"
OTHER = "20260101T000000Z-othr"


@pytest.fixture
def results(run: Path, tmp_path: Path) -> Path:
    """Results that hold another run of the same machine, whose numbers are the run's."""
    folder = tmp_path / "results" / run.parent.name / OTHER
    shutil.copytree(run, folder)
    (folder / "run.json").write_text((run / "run.json").read_text().replace(run.name, OTHER))
    return tmp_path / "results"


def slowed(run: Path, path: Path) -> Path:
    """Write the run's trials as ten times as slow: every time and rate, so that all rules are kept."""
    table = pq.read_table(run / "trials.parquet")
    times = [name for name in table.column_names if name.startswith("host_")]
    for name in ("wall_ns", "trial_wall_ns", *times):
        table = changed_in(table, name, lambda value: value * 10)
    pq.write_table(changed_in(table, "samples_per_s", lambda value: value / 10), path, write_page_checksum=True)
    return path


def changed_in(table: pa.Table, name: str, change: Callable[[Any], Any]) -> pa.Table:
    """Change all values of a column that are there."""
    place = table.schema.get_field_index(name)
    values = [None if value is None else change(value) for value in table[name].to_pylist()]
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


def rules(flags: tuple[Finding, ...] | list[Finding]) -> list[str]:
    return [flag.rule for flag in flags]


@pytest.mark.slow
def test_a_run_unlike_those_of_its_make_is_flagged(run: Path, results: Path, tmp_path: Path) -> None:
    """It is valid, and a reviewer is told what is usual; beside runs that are like it nothing is said."""
    path = slowed(run, tmp_path / "slow.parquet")
    found = guard.check(path, results)
    assert found.valid
    assert rules(found.flags) == [validation_flags.UNLIKE_OTHERS.name]
    assert f"usual: 0.25 to 4 times as fast as in run '{OTHER}'" in str(found.flags[0])
    assert guard.check(run / "trials.parquet", results).findings == ()
    assert guard.check(path).findings == ()


def test_what_was_withdrawn_is_nobodys_measure(run: Path, results: Path, tmp_path: Path) -> None:
    """A run that was taken back does not make others look odd."""
    path = slowed(run, tmp_path / "slow.parquet")
    beside = marks.place(results / run.parent.name / OTHER, "withdrawn")
    beside.write_text(json.dumps({"why": "wrong disk", "on": "2026-01-03"}))
    assert guard.check(path, results).findings == ()


def test_runs_of_others_cannot_refuse_a_file(run: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens while a valid run is held beside others, it stays valid, without flags."""
    path = run / "trials.parquet"
    (results / run.parent.name / OTHER / "trials.parquet").write_bytes(b"PAR1 is all of it PAR1")
    assert guard.check(path, results).findings == ()
    for answer in ({"exhausted": True}, {"failed": "KeyError"}, None):
        with_flags_that(answer, monkeypatch)
        found = guard.check(path, results)
        assert found.valid, answer
        assert found.findings == ()


def with_flags_that(answer: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the guarded process answer so when it is asked for flags; None dies over it."""
    ask = guard.Guard.ask

    def asked(self: guard.Guard, question: dict[str, Any]) -> dict[str, Any]:
        if "flags" not in question:
            return ask(self, question)
        if answer is None or answer.get("exhausted"):
            raise guard.Gone("gone")
        return answer

    monkeypatch.setattr(guard.Guard, "ask", asked)


def test_columns_that_came_later_may_be_missing(run: Path, results: Path, tmp_path: Path) -> None:
    """A file of schema version 1 may lack a column that flags look at: it is compared without."""
    paths = [slowed(run, tmp_path / "old.parquet"), results / run.parent.name / OTHER / "trials.parquet"]
    for path in paths:
        table = pq.read_table(path).drop_columns(["data_hash", "workload_version"])
        said = json.loads(table.schema.metadata[KEY]) | {"schema_version": 1}
        del said["needs_feedrate"]
        pq.write_table(table.replace_schema_metadata({KEY: json.dumps(said).encode()}), path, write_page_checksum=True)
    found = guard.check(paths[0], results)
    assert found.valid
    assert rules(found.flags) == [validation_flags.UNLIKE_OTHERS.name]


def every(change: Callable[[Any], Any]) -> Any:
    return lambda values: [None if value is None else change(value) for value in values]


def test_more_cpu_than_there_are_cores_is_flagged(changed: Any, tmp_path: Path) -> None:
    """Processes that used more than all cores together, beyond what clocks leave open."""
    folder = changed({"main_cpu_pct": every(lambda _: 1900.0)})
    found = validator.flags(folder, tmp_path / "none")
    assert rules(found) == [validation_flags.MORE_THAN_CORES.name]
    assert found[0].expected == "at most 110 % of the cores"


def test_a_span_longer_than_its_window_is_flagged(fake_run: ModuleType, changed: Any, tmp_path: Path) -> None:
    """The GPU cannot be in one span for longer than the window lasted."""
    source = fake_run.write(tmp_path / "cuda", fake_run.Fake(device="cuda", blocks=1, batches=(8,)))
    folder = changed({"device_forward_ns": every(lambda _: 10**13)}, source=source)
    found = validator.flags(folder, tmp_path / "none")
    assert rules(found) == [validation_flags.MORE_THAN_WINDOW.name]
    assert "device_forward_ns" in found[0].got


def test_times_that_never_differ_are_flagged(fake_run: ModuleType, changed: Any, tmp_path: Path) -> None:
    """No clock gives a cell the same nanoseconds in every one of several trials."""
    source = fake_run.write(tmp_path / "many", fake_run.Fake(blocks=6, batches=(8,)))
    folder = changed({"wall_ns": every(lambda _: 10**9)}, source=source)
    assert rules(validator.flags(folder, tmp_path / "none")) == [validation_flags.NO_SPREAD.name]
    assert validator.flags(source, tmp_path / "none") == []
