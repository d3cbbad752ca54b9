"""results/: the journal, and runs written whole or not at all."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from feedrate.schema import plugins
from feedrate.schema.columns import TABLES
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.plugins import ROOT
from feedrate.store import runs


@pytest.mark.parametrize("before", [[], [{"n": 1}, {"n": 2}]])
def test_a_torn_line_costs_that_line_only(before: list[dict[str, int]], tmp_path: Path) -> None:
    """What was appended before a crash in the middle of a write is read back, and appending goes on."""
    (tmp_path / "journal.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in before) + '{"n": 3, "tor')
    journal = runs.Journal(tmp_path)
    assert list(journal.entries()) == before
    journal.append({"n": 4})
    assert list(journal.entries()) == [*before, {"n": 4}]
    journal.close()


def test_a_full_disk_is_a_message(tmp_path: Path) -> None:
    """ENOSPC while a trial is written names the file, the cause and what to do; nothing before it is lost."""
    journal = runs.Journal(tmp_path)
    journal.close()
    words = r"journal\.jsonl: cannot write: the disk is full.*is kept"
    with Path("/dev/full").open("ab", buffering=0) as journal._file, pytest.raises(EnvironmentFault, match=words):
        journal.append({"n": 1})


def test_two_sweeps_at_once_are_refused(tmp_path: Path) -> None:
    """The second sweep on a machine is told which process holds the first."""
    code = "import time\nfrom pathlib import Path\nfrom feedrate.store import runs\n"
    code += f"with runs.machine_lock(Path({str(tmp_path)!r}), 'm'):\n    print('held', flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=plugins.ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        words = rf"another sweep is running here \(process {other.pid}\)"
        with pytest.raises(InputError, match=words), runs.machine_lock(tmp_path, "m"):
            pass
        other.kill()
    with runs.machine_lock(tmp_path, "m") as folder:
        assert folder == tmp_path / "m"


def test_an_unfinished_run_is_found_and_a_discarded_one_is_gone(tmp_path: Path) -> None:
    """A run that began and did not end can be resumed."""
    folder = runs.begin(tmp_path, "r1", {"key": "k"})
    assert [(p.name, plan["key"]) for p, plan in runs.unfinished(tmp_path)] == [("r1", "k")]
    runs.discard(folder)
    assert runs.unfinished(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_write_is_whole_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while a file is written leaves the old one."""
    path = tmp_path / "run.json"
    runs.write_whole(path, b"old")

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        runs.write_whole(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_bench_is_read_back_as_it_was_written(fake_run: ModuleType, tmp_path: Path) -> None:
    """Records lie beside a machine's runs, by the second at which they began, and come oldest first."""
    late, *early = [fake_run.bench(day=3, cores=2), *(fake_run.bench(sections=(name,)) for name in ("kills", "soak"))]
    folder = fake_run.write(tmp_path, fake_run.Fake(blocks=1, batches=(8,), cores=2))
    paths = [runs.write_bench(tmp_path, record) for record in (late, *early)]
    assert paths[0] == folder.with_name("bench") / "20260103T000000Z.json"
    assert len(set(paths)) == 3
    assert sorted(runs.benches(tmp_path), key=lambda record: (record.started_at, record.sections)) == [*early, late]
    assert runs.benches(tmp_path)[-1] == late
    assert runs.folders(tmp_path) == [folder]
    assert runs.unfinished(folder.parent) == []


@pytest.mark.parametrize("damage", ["{", '{"schema_version": 1}', "schema", "field", "estimate", "derived"])
def test_a_broken_bench_record_is_named(fake_run: ModuleType, tmp_path: Path, damage: str) -> None:
    """A file that is cut off, of another schema or not true to itself is an error that names it, not a traceback."""
    path = runs.write_bench(tmp_path, fake_run.bench())
    record = json.loads(path.read_text())
    if damage == "schema":
        record["schema_version"] = 2
    elif damage == "field":
        record["witnessed"][0]["unknown"] = 1
    elif damage == "estimate":
        record["witnessed"][0]["estimates"]["mean_of_rates"] = -1
    elif damage == "derived":
        record["witnessed"][0]["estimates"]["wall_clock"] = 801.0
    path.write_text(damage if damage.startswith("{") else json.dumps(record))
    with pytest.raises(InputError, match=r"bench/20260102T000000Z\.json: not a bench record of this version"):
        runs.benches(tmp_path)


def test_single_steps_take_little_room(fake_run: ModuleType, tmp_path: Path) -> None:
    """Numbers of steps and samples are split by bytes; trials stay in what every reader has, quick to open."""
    folder = fake_run.write(tmp_path)
    split = {}
    for name in TABLES:
        group = pq.read_metadata(folder / f"{name}.parquet").row_group(0)
        columns = [group.column(at) for at in range(group.num_columns)]
        split[name] = {one.path_in_schema for one in columns if "BYTE_STREAM_SPLIT" in one.encodings}
        assert {one.compression for one in columns} == {"SNAPPY" if name == "trials" else "ZSTD"}
    assert split["trials"] == set()
    assert {"step", "fetch_ns", "worker_begun_ns"} <= split["steps"]
    assert "trial_id" not in split["steps"]
    assert {"t_ns", "cpu_util_pct"} <= split["telemetry"]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_changed_since_is_refused(
    name: str, fake_run: ModuleType, corpus: ModuleType, tmp_path: Path
) -> None:
    """One other byte in a page is seen by whoever reads the column, and said with what to do."""
    folder = fake_run.write(tmp_path, fake_run.Fake(run_id=RUN, batches=(8,), blocks=1))
    file = folder / f"{name}.parquet"
    begin, _ = corpus.raw.body(file.read_bytes(), "run_id")
    data = bytearray(file.read_bytes())
    data[begin + 3] ^= 1
    file.write_bytes(data)
    (run,) = runs.runs(tmp_path)
    for read in (lambda: run.table(name), lambda: runs.rows([folder], ["run_id"], name)):
        with pytest.raises(InputError, match=rf"{name}\.parquet: .*checksum.*bring back a copy"):
            read()


def test_every_reader_verifies_checksums() -> None:
    """Whatever opens a table says that its pages are to be checked."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "harness" / "feedrate").rglob("*.py")]
    calls = [
        ast.unparse(node)
        for source in sources
        if "parquet as pq" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pq.read_table", "pq.ParquetFile")
    ]
    assert len(calls) > 4
    assert [
        call for call in calls if "**CHECKED" not in call and "**_OPTIONS" not in call and ".CHECKED" not in call
    ] == []


def test_trials_of_many_chunks_share_a_row_group(
    fake_run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A group of trials ends after enough rows, steps with each chunk; all rows are there, in their order."""
    fake = fake_run.Fake(blocks=1, batches=(8,))
    tables = fake_run.rows(fake)
    rows = len(tables["trials"])
    monkeypatch.setattr(runs, "GROUP_ROWS", 2 * rows)
    runs.write_run(tmp_path, fake_run.manifest(fake, tables["trials"]), [tables] * 5)
    trials, steps = (pq.ParquetFile(tmp_path / f"{name}.parquet") for name in ("trials", "steps"))
    assert [trials.metadata.row_group(at).num_rows for at in range(trials.num_row_groups)] == [2 * rows, 2 * rows, rows]
    assert steps.num_row_groups == 5
    assert trials.read()["trial_id"].to_pylist() == 5 * [row["trial_id"] for row in tables["trials"]]


RUN = "20260102T030405Z-fake"


def not_found(run: str, results: Path) -> str:
    """The message."""
    with pytest.raises(InputError) as error:
        runs.find(run, results)
    return str(error.value)


def test_a_name_of_nothing_is_told_what_there_is(fake_run: ModuleType, tmp_path: Path) -> None:
    """Nothing typed, something else typed, nothing there: each message says one time what was expected."""
    none = not_found("", tmp_path)
    assert none == f"RUN is missing; {tmp_path} holds none yet: make sweep makes one"
    fake_run.write(tmp_path, fake_run.Fake(run_id=RUN, batches=(8,), workers=(0,), blocks=1))
    assert not_found("", tmp_path) == f"RUN is missing; expected the id of a run, such as {RUN}, or the folder of one"
    wrong = not_found(RUN[:-1], tmp_path)
    assert wrong.startswith(
        f"'{RUN[:-1]}': no such run under {tmp_path}; expected one of {RUN} (did you mean '{RUN}'?)"
    )
    assert wrong.count("expected") == 1
