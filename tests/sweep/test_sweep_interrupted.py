"""What a real sweep survives: Ctrl-C, kills, data that is damaged or changed; and how it goes on."""

from __future__ import annotations

import signal
import subprocess
import tarfile
import time
from pathlib import Path

import psutil
import pytest
from PIL import Image
from sweeping import Place, printed_by

from feedrate.share import rules
from feedrate.store import runs

pytestmark = pytest.mark.slow
"""Real sweeps; tests/test_end_to_end.py runs one in make test."""

FEW = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.2, min_steps: 4, blocks: [1, 2], ci_target_pct: 0.001, timeout_s: 30}
suites:
  loader:
    - {mode: load, patch_size: 16, n_samples: 96, storage_format: [png, lmdb], batch_size: 8, num_workers: [0, 2]}
    - {mode: compute, patch_size: 16, batch_size: [4, 8]}
profiles: {quick: {}, forever: {protocol: {blocks: [1, 1000]}}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path, tmp_path / "data")
    place.matrix.write_text(FEW)
    return place


def living(family: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a sweep's parent outright; nobody whom it started stays."""
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.kill()
    process.communicate()
    psutil.wait_procs(family, timeout=30)
    assert not living(family)


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
    assert printed.strip() == "Interrupted before a measurement had ended: nothing was written."
    assert not list(place.results.glob("*/*/"))


def archived(place: Place, folder: Path) -> runs.StoredRun:
    """The run that the archive holds, unpacked."""
    with tarfile.open(place.results.with_name("kept.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    (run,) = runs.runs(folder / "results")
    assert not rules.judge(run.folder, in_place=True).findings
    return run


def test_a_killed_sweep_resumes_with_the_data_that_it_began_with(place: Place, tmp_path: Path) -> None:
    """A kill -9 of the parent loses at most the running trial, leaves nobody behind, and the same command resumes.

    Its archive holds every trial that had ended, and is whole. Photographs that changed meanwhile are refused, until
    --fresh closes the run that began with others.
    """
    folder = tmp_path / "photographs"
    folder.mkdir()
    Image.new("RGB", (64, 64), "red").save(folder / "a.png")
    place.matrix.write_text(FEW.replace("batch_size: 8,", "batch_size: 8, workload: div2k,"))
    archive = place.results.with_name("kept.tar.gz")
    words = ("--data", str(folder), "--seed", "3", "--archive", str(archive))
    killed_after(place, 3, *words)
    first = len(place.journal())
    Image.new("RGB", (64, 64), "blue").save(folder / "a.png")
    assert "the data changed since it began (folder)" in printed_by(*place.command(*words), status=2)
    killed_after(place, first + 5, "--fresh", *words)
    closed, *_ = runs.runs(place.results)
    assert closed.manifest.stop_reason == "interrupted"
    assert len(closed.table("trials")) == first
    before = place.journal()
    assert len(before) >= 5
    kept = archived(place, tmp_path / "killed").table("trials")
    assert {entry["trial"]["trial_id"] for entry in before} <= set(kept["trial_id"])
    assert f"{len(before)} measurements are there already" in printed_by(*place.command(*words))
    assert len(archived(place, tmp_path / "resumed").table("trials")) == 2 * 6
    trials = runs.runs(place.results)[-1].table("trials")
    assert len(trials) == len(set(trials["trial_id"])) == 2 * 6
    started = [entry["trial"]["started_at"] for entry in before]
    assert list(trials["started_at"])[: len(started)] == started


def killed_after(place: Place, trials: int, *words: str) -> None:
    """A sweep whose parent is killed when journals hold so many trials."""
    process = place.start(*words)
    place.wait_for_trials(trials)
    kill(process)
