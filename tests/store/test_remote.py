"""Results in a store: an S3 server, and faults between it and here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3_server
import s3fs
from fsspec.implementations.local import LocalFileSystem
from s3_server import Store
from sweeping import typed
from upath import UPath

from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.plugins import ROOT
from feedrate.store import location, marks, remote, runs
from feedrate.sweep.launcher import Template

BUCKET = "measured"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
HOME = "import sys\nfrom pathlib import Path\nfrom feedrate.store import location, remote, runs\n"
HOME += "home = Path(sys.argv.pop(1))\nruns.home = lambda: home\n"
"""How a process of a test begins that has an outbox of its own."""


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    """A server with an empty bucket."""
    with s3_server.started() as store:
        yield store


@pytest.fixture
def results(server: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty store, and an outbox of this test's own."""
    server.reset()
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setattr(s3fs.S3FileSystem, "read_timeout", s3_server.STALL_S / 2)
    monkeypatch.setattr(runs, "home", lambda: tmp_path / "home")
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    files.mkdir(BUCKET)
    yield location.parse(f"s3://{BUCKET}/{tmp_path.name}")
    server.reset()
    files.rm(BUCKET, recursive=True)


def made(fake_run: ModuleType, results: Path, **what: Any) -> Path:
    """Write a made-up run into the outbox of a store."""
    fake = fake_run.Fake(blocks=1, batches=(8,), **what)
    return fake_run.write(runs.outbox(results), fake)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s4://bucket/results", "no store's protocol; expected a folder, or a URL such as s3://bucket/results"),
        ("ssh://me:hunter2@host/results", "with a password"),
        ("s3://KEY:hunter2/x@bucket/results", "with a password"),
        ("https://host/results?sig=hunter2", "with a password"),
        ("simplecache::s3://hunter2/results", "with a password"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_without_its_secrets(text: str, message: str) -> None:
    """What no client reaches and what holds a password is refused at once, and nothing secret is repeated."""
    with pytest.raises(InputError, match=message) as refused:
        location.parse(text)
    assert "hunter2" not in str(refused.value)


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lacks a store's client is told which package has it."""
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(InputError, match="pip install gcsfs"):
        location.parse("gs://bucket/results")


def test_a_folder_stays_a_folder(tmp_path: Path) -> None:
    """Folders, and URLs of folders here, are paths as ever, and load no client."""
    code = "import sys\nfrom feedrate.store import location\nlocation.parse('results')\nprint('fsspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"
    assert location.parse("~/results") == Path.home() / "results"
    assert location.parse(f"file://{tmp_path}") == tmp_path


def test_stores_of_two_hosts_have_two_outboxes() -> None:
    """A host that the text of a path leaves out still tells stores apart."""
    boxes = {runs.outbox(cast("Path", UPath("memory:///results", host=host))) for host in ("a", "b")}
    assert len(boxes) == 2


@pytest.mark.slow
def test_a_run_reads_as_it_was_written(results: Path, fake_run: ModuleType, tmp_path: Path) -> None:
    """A store gives the same runs, tables, benches and marks as a folder; nothing stays in the outbox."""
    folder = made(fake_run, results)
    written = runs.runs(runs.outbox(results))[0]
    tables = {name: written.table(name) for name in ("trials", "steps", "telemetry")}
    bench = runs.write_bench(results, fake_run.bench())
    handed = remote.hand_in_left(results, folder.parent.name)
    remote.hand_in(bench, results)
    assert handed == [results / folder.parent.name / folder.name]
    assert not any(path.is_file() for path in runs.outbox(results).rglob("*"))
    (stored,) = runs.runs(results)
    assert (stored.folder, stored.manifest) == (handed[0], written.manifest)
    assert runs.find(folder.name, results) == stored == runs.find(str(handed[0]), tmp_path)
    for name, table in tables.items():
        assert stored.table(name).equals(table)
    assert runs.rows(runs.folders(results), ["suite", "block"]).equals(tables["trials"][["suite", "block"]])
    assert [one.started_at for one in runs.benches(results)] == [fake_run.bench().started_at]
    marks.label(stored.folder, "mine")
    marks.withdraw(stored.folder, "a defect")
    assert marks.about(stored.folder).label == "mine"
    assert not marks.not_withdrawn([stored])


@pytest.mark.slow
def test_runs_are_listed_and_opened_with_few_requests(server: Store, results: Path, fake_run: ModuleType) -> None:
    """Runs cost a request for the list and one each, a column of all of them no more."""
    for day in range(1, 5):
        folder = made(fake_run, results, run_id=f"2026010{day}T030405Z-fake")
        remote.hand_in(folder, results)
    server.reset()
    assert len(runs.runs(results)) == 4
    assert server.requests == {"GET": 5}
    server.reset()
    runs.rows(runs.folders(results), ["suite"])
    assert server.requests == {"GET": 5}


@pytest.mark.slow
def test_of_a_long_table_only_what_is_asked_for_is_fetched(server: Store, results: Path, tmp_path: Path) -> None:
    """A column of a table of many megabytes is read without most of the others."""
    numbers = pa.array([int.from_bytes(os.urandom(7)) for _ in range(300_000)])
    pq.write_table(pa.table(dict.fromkeys("abcdefgh", numbers)), file := tmp_path / "long", use_dictionary=False)
    location.put(results / "long", file)
    server.reset()
    with location.opened(results / "long") as source:
        assert pq.read_table(source, columns=["d"], use_threads=False)["d"].combine_chunks() == numbers
    assert server.sent < 0.35 * file.stat().st_size


@pytest.mark.slow
def test_nothing_that_is_there_is_overwritten(results: Path, fake_run: ModuleType) -> None:
    """A run whose name is taken by another content is kept here; the same content is handed in as if anew."""
    folder = made(fake_run, results)
    target = results / folder.parent.name / folder.name / "run.json"
    location.put(target, b"{}")
    with pytest.raises(InputError, match="holds another run of this name"):
        remote.hand_in(folder, results)
    assert target.read_bytes() == b"{}"
    location.put(target, (folder / "run.json").read_bytes())
    remote.hand_in(folder, results)
    assert not folder.exists()


@pytest.mark.slow
def test_two_writers_do_not_disturb_each_other(results: Path, fake_run: ModuleType) -> None:
    """Runs that are handed in at the same time are both there, whole."""
    folders = [made(fake_run, results, run_id=f"2026010{day}T030405Z-fake") for day in (1, 2)]
    expected = [run.table("steps") for run in runs.runs(runs.outbox(results))]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(remote.hand_in, folders, [results] * 2))
    assert all(run.table("steps").equals(table) for run, table in zip(runs.runs(results), expected, strict=True))


@pytest.mark.slow
def test_a_copy_fetches_runs_once_and_marks_anew(
    server: Store, results: Path, fake_run: ModuleType, tmp_path: Path
) -> None:
    """A second copy asks for what is new; what the store lost goes, and names that lead elsewhere are not followed."""
    folders = [remote.hand_in(made(fake_run, results, run_id=f"2026010{day}T030405Z-fake"), results) for day in (1, 2)]
    marks.label(folders[0], "mine")
    location.put(results / "m" / "half" / "trials.parquet", b"half a run")
    client, root = results.fs, results.path  # type: ignore[attr-defined]
    client.pipe_file(f"{root}/../escaped/run.json", b"{}")
    assert "../escaped/run.json" in location.listing(results)
    here = remote.copy(results, tmp_path / "copies")
    assert [run.manifest.run_id for run in runs.runs(here)] == [folder.name for folder in folders]
    assert marks.about(runs.folders(here)[0]).label == "mine"
    assert [path.name for path in (tmp_path / "copies").iterdir()] == [here.name]
    server.reset()
    assert remote.copy(results, tmp_path / "copies") == here
    assert server.requests["GET"] <= 2
    client.rm(str(folders[1].path), recursive=True)  # type: ignore[attr-defined]
    client.rm(marks.mark_file(folders[0], "label").path)  # type: ignore[attr-defined]
    remote.copy(results, tmp_path / "copies")
    assert [folder.name for folder in runs.folders(here)] == [folders[0].name]
    assert marks.about(runs.folders(here)[0]).label == ""


class Plain(LocalFileSystem):
    """Files behind a protocol that does not promise whole objects."""

    protocol = "plain"


def test_where_files_grow_they_are_renamed_when_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system a reader sees no file before all of it is there, and a failure leaves the one before."""
    fsspec.register_implementation("plain", Plain, clobber=True)
    target = location.parse(f"plain://{tmp_path}/store/machine/file")
    location.put(target, b"whole")
    assert [path.name for path in (tmp_path / "store/machine").iterdir()] == ["file"]

    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(Plain, "mv", fail)
    with pytest.raises(EnvironmentFault, match="gone"):
        location.put(target, b"another")
    assert (tmp_path / "store/machine/file").read_bytes() == b"whole"


def test_a_store_that_cannot_be_read_is_a_message(server: Store, results: Path, fake_run: ModuleType) -> None:
    """Reading says what the client said; an error of the store is not taken for a damaged file."""
    stored = remote.hand_in(made(fake_run, results), results)
    server.fault, server.method = "error", "GET"
    for read in (lambda: runs.folders(results), lambda: runs.rows([stored], ["suite"])):
        with pytest.raises(EnvironmentFault, match="the store did not do what was asked"):
            read()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "file"),
    [("error", "steps.parquet"), ("stall", "run.json"), ("cut", "steps.parquet"), ("cut", "run.json")],
)
def test_a_store_that_fails_loses_nothing(
    server: Store, results: Path, fake_run: ModuleType, fault: s3_server.Fault, file: str
) -> None:
    """Whatever happens to an upload, no half run is seen, the run stays here, and the next sweep hands it in."""
    folder = made(fake_run, results)
    table = runs.runs(runs.outbox(results))[0].table("steps")
    server.fault, server.on = fault, file
    with pytest.raises(EnvironmentFault, match=f"Nothing is lost: {folder} is whole"):
        remote.hand_in(folder, results)
    assert server.hit.is_set()
    server.reset()
    assert not runs.folders(results)
    assert len(runs.folders(runs.outbox(results))) == 1
    (handed,) = remote.hand_in_left(results, folder.parent.name)
    assert runs.find(handed.name, results).table("steps").equals(table)
    assert not folder.exists()


@pytest.mark.slow
def test_a_kill_in_the_middle_of_an_upload_loses_nothing(
    server: Store, results: Path, fake_run: ModuleType, tmp_path: Path
) -> None:
    """A process that is killed leaves no half run that anybody sees; the next one hands the run in."""
    folder = made(fake_run, results)
    code = f"{HOME}remote.hand_in_left(location.parse(sys.argv[1]), sys.argv[2])"
    server.fault, server.on = "stall", "run.json"
    words = [sys.executable, "-c", code, str(tmp_path / "home"), str(results), folder.parent.name]
    with subprocess.Popen(words, cwd=ROOT) as writer:
        assert server.hit.wait(60)
        writer.send_signal(signal.SIGKILL)
    server.reset()
    assert not runs.folders(results)
    remote.hand_in_left(results, folder.parent.name)
    assert [path.name for path in runs.folders(results)] == [folder.name]


MATRIX = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.1, min_steps: 4, blocks: [1, 1], timeout_s: 30}
suites: {loader: {mode: load, workload: synthetic, storage_format: memmap, patch_size: 8, n_samples: 64, batch_size: 8}}
profiles: {quick: {}}
"""


@pytest.mark.slow
def test_a_sweep_whose_store_fails_is_handed_in_by_the_next(
    server: Store, results: Path, template: Template, tmp_path: Path
) -> None:
    """A sweep says at its end what its store did not take and where that lies; a sweep after it hands in both."""
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    words = ("sweep", "--matrix", str(tmp_path / "matrix.yaml"), "--results", str(results))
    words += ("--data-root", str(tmp_path / "data"))
    server.fault, server.on = "error", "steps.parquet"
    failed = typed(*words, template=template)
    (left,) = runs.folders(runs.outbox(results))
    assert failed.status == 2, failed.out
    assert f"Nothing is lost: {left} is whole" in failed.err
    server.reset()
    assert not runs.folders(results)
    assert typed(*words, template=template).status == 0
    assert [len(run.table("trials")) for run in runs.runs(results)] == [1, 1]
    assert runs.folders(results)[0].name == left.name
    assert not runs.folders(runs.outbox(results))
