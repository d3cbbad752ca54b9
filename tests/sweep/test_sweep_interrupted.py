"""What a real sweep survives: Ctrl-C, kills, data that is damaged or changed; and how it goes on."""

from __future__ import annotations

import signal
import tarfile
import time
from pathlib import Path

import psutil
import pytest
from PIL import Image
from sweeping import MATRIX, Place, printed_by

from feedrate.share import rules
from feedrate.store import runs as store_runs

pytestmark = pytest.mark.slow
"""Real sweeps; tests/test_end_to_end.py runs one in make test."""

FEW = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.2, min_steps: 4, blocks: [1, 2], ci_target_pct: 0.001, timeout_s: 30}
suites:
  loader:
    - {mode: load, patch_size: 16, n_samples: 96, storage_format: [png, lmdb], batch_size: 8, num_workers: [0, 2]}
    - {mode: compute, patch_size: 16, batch_size: [4, 8]}
profiles: {quick: {}}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def place(tmp_path: Path, data: Path) -> Place:
    return Place(tmp_path, data)


def test_a_damaged_set_is_a_row_and_the_sweep_goes_on(place: Place, tmp_path: Path) -> None:
    """A trial that fails is recorded with its reason; the others are measured."""
    place.data = tmp_path / "data"
    process = place.start("--profile", "forever", "--seed", "1")
    place.wait_for_trials(2)
    for path in place.data.glob("synthetic-*/png/**/*.png"):
        path.write_bytes(b"not a picture")
    place.wait_for_trials(14)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    found = store_runs.runs(place.results)[-1].table("trials")
    failed = found[found["outcome"] == "error"]
    assert (failed["error_kind"] == "DataError").all()
    assert not failed.empty
    assert str(tmp_path) not in " ".join(failed["error_message"])
    assert (found.loc[found["storage_format"] == "lmdb", "outcome"] == "ok").all()
    assert "× error: DataError" in printed


def test_ctrl_c_keeps_what_had_ended(place: Place) -> None:
    """Ctrl-C ends the sweep about as soon as it began: status 130, finished trials in parquet and no process left."""
    begun = time.monotonic()
    process = place.start("--profile", "forever")
    place.wait_for_trials(3)
    family = psutil.Process(process.pid).children(recursive=True)
    told = time.monotonic()
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    print(f"{time.monotonic() - told:.1f} s, begun {told - begun:.1f} s before")
    assert time.monotonic() - told < 3 * (told - begun)
    assert process.returncode == 130, printed
    run = store_runs.runs(place.results)[-1]
    assert run.manifest.stop_reason == "interrupted"
    assert len(run.table("trials")) >= 3
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert "Traceback" not in printed


def test_ctrl_c_before_anything_was_measured(place: Place) -> None:
    """Ctrl-C while torch is imported ends at once, with one line and nothing written."""
    process = place.start()
    assert process.stdout is not None
    while "Starting" not in (line := process.stdout.readline()):
        assert line
    while not psutil.Process(process.pid).children():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert printed.strip() == "Interrupted before a trial had ended: nothing was written."
    assert not list(place.results.glob("*/*/"))


def archived(place: Place, folder: Path) -> store_runs.StoredRun:
    """The run that the archive holds, unpacked."""
    with tarfile.open(place.results.with_name("kept.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    (run,) = store_runs.runs(folder / "results")
    assert not rules.judge(run.folder, in_place=True).findings
    return run


def test_a_killed_sweep_resumes(place: Place, tmp_path: Path) -> None:
    """A kill -9 of the parent loses at most the running trial, leaves nobody behind, and the same command resumes.

    Its archive holds every trial that had ended, and is whole.
    """
    place.matrix.write_text(FEW)
    kept = ("--archive", str(place.results.with_name("kept.tar.gz")))
    process = place.start("--seed", "3", *kept)
    place.wait_for_trials(5)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 1
    process.kill()
    process.communicate()
    psutil.wait_procs(family, timeout=30)
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    before = place.journal()
    assert len(before) >= 5
    assert {entry["trial"]["trial_id"] for entry in before} <= set(
        archived(place, tmp_path / "killed").table("trials")["trial_id"]
    )
    assert f"{len(before)} trials are there already" in printed_by(*place.command("--seed", "3", *kept))
    assert len(archived(place, tmp_path / "resumed").table("trials")) == 2 * 6
    runs = store_runs.runs(place.results)
    assert len(runs) == 1
    found = runs[0].table("trials")
    assert len(found) == len(set(found["trial_id"])) == 2 * 6
    kept = [entry["trial"]["started_at"] for entry in before]
    assert list(found["started_at"])[: len(kept)] == kept


def test_fresh_does_not_resume(place: Place) -> None:
    """--fresh closes the unfinished run as far as it came, and begins a new one."""
    place.matrix.write_text(FEW)
    process = place.start("--seed", "3")
    place.wait_for_trials(2)
    process.kill()
    process.communicate()
    assert "trials are there already" not in printed_by(*place.command("--fresh", "--seed", "3"))
    old, new = store_runs.runs(place.results)
    assert (old.manifest.stop_reason, new.manifest.stop_reason) == ("interrupted", "blocks")
    assert len(old.table("trials")) >= 2


def test_a_run_goes_on_with_the_data_that_it_began_with(place: Place, tmp_path: Path) -> None:
    """Photographs that changed while a sweep was down are not mixed into its run."""
    folder = tmp_path / "photographs"
    folder.mkdir()
    Image.new("RGB", (64, 64), "red").save(folder / "a.png")
    place.matrix.write_text(MATRIX.replace("batch_size: 8", "batch_size: 8, workload: div2k"))
    words = ["--data", str(folder), "--seed", "3"]
    process = place.start(*words)
    place.wait_for_trials(3)
    process.kill()
    process.communicate()
    Image.new("RGB", (64, 64), "blue").save(folder / "a.png")
    assert "the data changed since it began (folder)" in printed_by(*place.command(*words), status=2)
    assert len(place.journal()) >= 3
