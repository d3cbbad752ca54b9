"""Files of earlier schema versions are read as files of this one, and those of a newer one are refused."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feedrate.schema.axes import cell_id
from feedrate.schema.columns import NEEDS_FEEDRATE, SCHEMA_VERSION, TABLES
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.store import migration
from feedrate.store import runs as store_runs

GOLDEN = ROOT / "tests" / "golden"
VERSIONS = (1, 2, 3, 4, 5, 6, 7, 8, 9)
MOST_BYTES = 100_000


def golden(version: int) -> store_runs.StoredRun:
    """The run that was written in a version."""
    (run,) = store_runs.runs(GOLDEN / f"v{version}")
    return run


def written(version: int) -> dict[str, Any]:
    """The manifest of that run as it stands in its file."""
    found: dict[str, Any] = json.loads((golden(version).folder / "run.json").read_bytes())
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_files_are_of_their_version_and_small(version: int) -> None:
    """Each version has files that its own feedrate wrote, and the manifest in each of them says which."""
    assert VERSIONS == (*range(1, SCHEMA_VERSION), SCHEMA_VERSION) == migration.READ
    files = sorted(golden(version).folder.iterdir())
    assert [path.name for path in files] == ["run.json", *sorted(f"{name}.parquet" for name in TABLES)]
    assert all(path.stat().st_size < MOST_BYTES for path in files)
    for path in files[1:]:
        embedded = json.loads(pq.read_schema(path).metadata[migration.MANIFEST_KEY])
        assert embedded["schema_version"] == version
        assert embedded == written(version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_column_whatever_version_wrote_it(version: int, name: str) -> None:
    """What the file has is read by the names of today; what came later is null throughout; both readers agree."""
    run = golden(version)
    raw = migration.current_table(pq.read_table(run.folder / f"{name}.parquet"), version)
    frame = run.table(name)
    assert list(frame.columns) == [column.name for column in TABLES[name]]
    assert len(frame) == raw.num_rows > 0
    for column in frame.columns:
        held = raw.column(column).to_pylist() if column in raw.column_names else [None] * raw.num_rows
        assert [None if pd.isna(value) else value for value in frame[column]] == held
    several = store_runs.rows([run.folder, run.folder], list(frame.columns), name)
    pd.testing.assert_frame_equal(several, pd.concat([frame, frame], ignore_index=True))


def test_earlier_versions_lack_columns_and_this_one_none() -> None:
    """Golden files of earlier versions need their migration: a test of nothing would pass as well."""
    lacking = {
        version: {
            column.name
            for name, columns in TABLES.items()
            for column in columns
            if column.name not in pq.read_schema(golden(version).folder / f"{name}.parquet").names
        }
        for version in VERSIONS
    }
    assert "evidence" in lacking[1]
    assert lacking[8] == {"loader"}
    assert lacking[7] == lacking[6] == {"loader", "nodes"}
    came = {
        "loader",
        "nodes",
        "scaled_decode",
        "first_step_ns",
        "gpu_energy_ns",
        "gpu_allocations",
        "pinned_allocations",
    }
    assert lacking[5] == lacking[4] == came
    assert lacking[3] == lacking[4] | {"script", "worker_getitem_ns", "batches_ready"}
    assert lacking[2] == lacking[3] | {"memory_limit_mib", "read_ahead_kib", "ddp_buckets"} < lacking[1]
    assert not lacking[9]
    assert "tuned" not in written(4)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_manifest_is_read_as_one_of_this_version(version: int) -> None:
    """Every field that was written is read back; the version and what is needed are those of today."""
    run, before = golden(version).manifest, written(version)
    assert (run.schema_version, run.needs_feedrate) == (SCHEMA_VERSION, NEEDS_FEEDRATE)
    assert _within(before | {"schema_version": SCHEMA_VERSION}, run.model_dump(mode="json"))


def _within(part: Any, whole: Any) -> bool:
    """Whether everything that a value says is said by another that may say more."""
    if isinstance(part, dict):
        return all(name in whole and _within(value, whole[name]) for name, value in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(_within, part, whole))
    return bool(part == whole)


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_an_axis_that_was_renamed_is_read_by_its_name_of_today(kind: pa.DataType) -> None:
    """Its values too, in tables and manifests of before; a table of today keeps what it has, and ids of cells stay."""
    table = pa.table({"steps": [1, 2, 3], "worker_kind": pa.array(["thread", None, "process"]).cast(kind)})
    current = migration.current_table(table, 8)
    assert current.schema == pa.schema({"steps": pa.int64(), "loader": kind})
    assert current.column("loader").to_pylist() == ["threads", None, "torch"]
    assert migration.current_table(table, 9) == table
    before = {
        "suites": {"workers": [{"mode": ["load"], "worker_kind": ["process", "thread"]}]},
        "contrasts": [{"axis": "worker_kind", "reason": "thread"}],
    }
    assert migration.current_fields(before, 8) == {
        "suites": {"workers": [{"mode": ["load"], "loader": ["torch", "threads"]}]},
        "contrasts": [{"axis": "loader", "reason": "thread"}],
    }
    axes = {"workload": "synthetic", "mode": "load", "num_workers": 2, "prefetch_factor": 4}
    assert cell_id({**axes, "loader": "threads"}) == "d97de1d7207f"
    assert cell_id({**axes, "loader": "torch"}) == cell_id(axes) == "871009ef7f92"


def test_what_a_search_found_is_read() -> None:
    """The first version that knows searches has the run of one, with what it found and trials of its settings."""
    (run,) = store_runs.runs(GOLDEN / "v5_tune")
    (found,) = run.manifest.tuned
    assert found.trials == len(run.table("trials")) > 0
    assert found.known
    assert found.gain
    assert all(path.stat().st_size < MOST_BYTES for path in run.folder.iterdir())


def test_what_a_version_holds_is_frozen() -> None:
    """Another column, type or field is another schema version: this list and SCHEMA_VERSION change together."""
    holding = runpy.run_path(str(GOLDEN / "make.py"))["holding"]()
    assert holding == json.loads((GOLDEN / f"v{SCHEMA_VERSION}" / "holds.json").read_bytes())


def test_every_run_that_was_committed_is_read() -> None:
    """Runs of all ages under results/ have every column."""
    runs = store_runs.runs(ROOT / "results")
    assert runs
    for name, columns in TABLES.items():
        some = [*(column.name for column in columns if column.dtype != "string"), columns[-1].name][-4:]
        assert list(store_runs.rows([run.folder for run in runs], some, name).columns) == some


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"schema_version": SCHEMA_VERSION + 1, "feedrate_version": "9.9.9", "needs_feedrate": "9.8"},
            rf"run\.json: written by feedrate 9\.9\.9 in schema version {SCHEMA_VERSION + 1}; .* versions 1 to "
            rf"{SCHEMA_VERSION}: needs feedrate ≥ 9\.8",
        ),
        (
            {"schema_version": SCHEMA_VERSION + 1, "feedrate_version": "9.9.9"},
            "written by feedrate 9.9.9 .* needs a newer feedrate",
        ),
        ({"schema_version": 2, "feedrate_version": "0.9", "needs_feedrate": "99.0"}, "needs feedrate ≥ 99.0"),
        (
            {"schema_version": 9_999, "feedrate_version": "<script>", "needs_feedrate": "\x1b[31m"},
            "of an unknown version .* needs a newer feedrate",
        ),
    ],
)
def test_what_a_newer_feedrate_wrote_is_refused_with_what_it_needs(fields: dict[str, Any], words: str) -> None:
    """The message says who wrote it, what this feedrate reads and which one is needed; it repeats no markup."""
    with pytest.raises(InputError, match=words) as caught:
        migration.manifest(json.dumps(fields), "run.json")
    assert "<script>" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"{}",
        b'{"schema_version": "1"}',
        b'{"schema_version": true}',
        b'{"schema_version": 0}',
        b'{"schema_version": 1.5}',
        b'{"schema_version": NaN}',
        b'{"schema_version": 1' + b"0" * 5_000 + b"}",
        b'{"schema_version": 1}',
    ],
    ids=lambda text: text[:30].decode(errors="replace"),
)
def test_what_is_no_manifest_is_said_in_one_line(text: bytes) -> None:
    """Whatever stands in its place, however deep it nests, is an error that names the file and never a traceback."""
    with pytest.raises(InputError, match=r"^run\.json: not a run manifest: ") as caught:
        migration.manifest(text, "run.json")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("needs", ["missing", "99.0.0rc1", "99999.0", "v9", "", "0", "٣.٠", None, 1.0])
def test_version_2_must_say_which_feedrate_it_needs(needs: object) -> None:
    """Whoever writes nothing or something else in its place does not get in as a file that needs none."""
    fields = written(2) | {"needs_feedrate": needs}
    words = "needs_feedrate is no version of feedrate"
    if needs == "missing":
        del fields["needs_feedrate"]
        words = "needs_feedrate is missing"
    with pytest.raises(InputError, match=words):
        migration.manifest(json.dumps(fields), "run.json")


@pytest.fixture
def run(tmp_path: Path, fake_run: ModuleType) -> store_runs.StoredRun:
    """A run of this version, to be damaged."""
    fake_run.write(tmp_path, fake_run.Fake(blocks=1, batches=(8,)))
    return store_runs.runs(tmp_path)[0]


@pytest.mark.parametrize(
    ("version", "column"), [(3, "evidence"), (3, "memory_limit_mib"), (3, "read_ahead_kib"), (2, "evidence")]
)
def test_a_column_that_is_missing_from_a_file_that_must_have_it_is_refused(
    tmp_path: Path, version: int, column: str
) -> None:
    """A file lacks what came after its version and nothing else: what was taken out is not made up as null."""
    folder = tmp_path / "results" / "machine" / "run"
    shutil.copytree(golden(version).folder, folder)
    (run,) = store_runs.runs(tmp_path / "results")
    path = folder / "trials.parquet"
    pq.write_table(pq.read_table(path).drop_columns([column]), path)
    with pytest.raises(InputError, match=rf"trials\.parquet: column '{column}' is missing"):
        run.table("trials")
    with pytest.raises(InputError, match=f"column '{column}' is missing"):
        store_runs.rows([folder], ["trial_id", column])
    assert len(store_runs.rows([folder], ["trial_id"]))


def test_a_column_of_another_type_is_refused(run: store_runs.StoredRun) -> None:
    """A type that is not the table's is said with both, by either reader."""
    path = run.folder / "trials.parquet"
    table = pq.read_table(path)
    place = table.schema.get_field_index("steps")
    pq.write_table(table.set_column(place, "steps", table.column("steps").cast(pa.float64())), path)
    with pytest.raises(InputError, match="column 'steps' holds double, expected int64"):
        run.table("trials")


def test_a_file_without_a_manifest_lacks_nothing_or_is_refused(run: store_runs.StoredRun) -> None:
    """Without its manifest nobody knows a file's version: a column that is missing is then not filled in."""
    path = run.folder / "trials.parquet"
    bare = pq.read_table(path).replace_schema_metadata(None)
    pq.write_table(bare, path)
    assert len(run.table("trials")) == bare.num_rows
    pq.write_table(bare.drop_columns(["evidence"]), path)
    with pytest.raises(InputError, match="not a run manifest"):
        run.table("trials")


def test_a_name_that_a_stranger_gave_to_a_field_is_no_more_than_text() -> None:
    """A field that nobody knows is named on one line, short, without what a terminal would obey."""
    fields = written(2) | {"\x1b[31m\n" + "x" * 5_000: 1}
    with pytest.raises(InputError, match="not a run manifest: x") as caught:
        migration.manifest(json.dumps(fields), "run.json")
    assert len(str(caught.value)) < 500
    assert "\x1b" not in str(caught.value)
