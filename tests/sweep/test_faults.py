"""What befalls a real sweep: full disks, plug-ins that fail, a clock that is set back; and a site's build: a kill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import psutil
import pytest
from sweeping import Place, typed

from feedrate.machine import linux
from feedrate.machine.probes.procfs import semaphores, shm_segments
from feedrate.plan import request
from feedrate.plan.options import SweepOptions
from feedrate.schema.plugins import ROOT
from feedrate.share import validator
from feedrate.store import runs
from feedrate.sweep import observer, sweep
from feedrate.sweep import run as active
from feedrate.sweep.launcher import Template

pytestmark = pytest.mark.slow

MATRIX = """
version: 1
protocol: {warmup_s: 0.02, window_s: 0.05, min_steps: 2, blocks: [1, 1], timeout_s: 20}
suites:
  loader: {mode: load, patch_size: 16, n_samples: 32, storage_format: FORMATS, num_workers: 0, batch_size: BATCHES}
profiles: {quick: {}}
"""
NO_ROOM = "(?i)no space|disk|full"
BROKEN = """
import ctypes, sys
from importlib.machinery import PathFinder
FAULTS = {"feedrate.formats.memmap": (0, "raise ValueError('planted')"),
          "feedrate.formats.lmdb": (40, "ctypes.string_at(0)")}
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target)
        if name in FAULTS:
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (load(module), spoil(module, *FAULTS[name]))
        return spec
def spoil(module, after, fault):
    reader = next(value for name, value in vars(module).items() if name in ("MemmapReader", "LmdbReader"))
    right, reads = reader.read_into, []
    def read_into(*given):
        reads.append(None)
        if len(reads) > after:
            exec(fault)
        return right(*given)
    reader.read_into = read_into
sys.meta_path.insert(0, Finder)
"""
"""Makes two plug-ins fail wherever they are imported: one as its samples are packed, the other in its trials."""


class Back(datetime):
    """A clock that goes back by an hour after its first look."""

    looks = 0

    @classmethod
    def now(cls, tz: object = None) -> Self:
        cls.looks += 1
        return super().now(tz) - timedelta(hours=cls.looks > 1)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def nothing_left(template: Template) -> Iterator[None]:
    """After each test no process lives on that it started, and no shared memory lies there whose owner is gone."""
    linux.adopt_orphans()
    before, segments = set(psutil.Process().children(recursive=True)), shm_segments()
    yield
    started = set(psutil.Process().children(recursive=True)) - before
    assert psutil.wait_procs(started, timeout=15)[1] == []
    until = time.monotonic() + 15  # a process of another test may be ending, whose locks go after it
    while (left := {name for name in shm_segments() - segments if not owned(name)}) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == set()


def owned(segment: str) -> bool:
    """Whether the process that made a segment lives, whose id stands in the name, or one that has it open."""
    if any(psutil.pid_exists(int(number)) for number in re.findall(r"\d{2,}", segment)):
        return True
    return any(path.name == segment for pid in psutil.pids() for path in semaphores(pid))


def planned(folder: Path, formats: str = "lmdb", batches: str = "8") -> Place:
    """A folder with a matrix of one block."""
    place = Place(folder)
    place.matrix.write_text(MATRIX.replace("FORMATS", formats).replace("BATCHES", batches))
    return place


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A small disk of its own as a folder."""
    if os.geteuid():
        pytest.skip("mounting a small file system takes root")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def require_whole(place: Place, ended: dict[str, float | None]) -> runs.StoredRun:
    """There is one run, valid, with every planned setting and every measurement that had ended."""
    (run,) = runs.runs(place.results)
    trials = run.table("trials").set_index("trial_id")
    speeds = trials["samples_per_s"].astype(object).where(trials["samples_per_s"].notna(), None).to_dict()
    assert {name: speeds.get(name, "lost") for name in ended} == ended
    options = SweepOptions(matrix=place.matrix, results=place.results, data_root=place.data)
    assert {cell.cell_id for cell in request.make(options).plan.all_cells} <= set(trials["cell_id"])
    assert not validator.check(run.folder, place.results).findings
    assert not list(place.results.rglob("*.tmp"))
    return run


@pytest.mark.parametrize(
    ("name", "size", "options", "says"),
    [("data", "60k", "rw", NO_ROOM), ("results", "64m", "ro", "(?i)read-only|written")],
    ids=["data full", "results read-only"],
)
def test_a_disk_that_takes_nothing_is_a_message(
    name: str, size: str, options: str, says: str, template: Template, tmp_path: Path
) -> None:
    """What cannot be written is said, and nothing is left running."""
    place = planned(tmp_path)
    with small_disk(tmp_path / name, size):
        subprocess.run(["mount", "-o", f"remount,{options}", tmp_path / name], check=True)
        assert re.search(says, place.sweep(template, status=2))


def test_where_results_found_no_room_the_next_sweep_goes_on(template: Template, tmp_path: Path) -> None:
    """The disk fills up in the middle: a message; with more room the same command loses nothing of what had ended."""
    place = planned(tmp_path, "[memmap, lmdb]", batches="[1, 2, 4, 8]")
    with small_disk(place.results, "28k"):
        assert re.search(NO_ROOM, place.sweep(template, status=2))
        ended = {entry["trial"]["trial_id"]: entry["trial"].get("samples_per_s") for entry in place.journal()}
        assert ended
        subprocess.run(["mount", "-o", "remount,size=64m", place.results], check=True)
        place.sweep(template)
        require_whole(place, ended)


def test_a_plug_in_that_fails_costs_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One raises while packing, one dies of a segmentation fault in a trial: rows say so, all others are measured.

    The clock goes back by an hour meanwhile: no moment of the run lies before the one ahead of it.
    """
    place = planned(tmp_path, "[memmap, lmdb, npy]")
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
    for module in (observer, active, sweep):
        monkeypatch.setattr(module, "datetime", Back)
    done = typed(*place.words())
    assert done.status == 0, done.out + done.err
    assert Back.looks > 1
    run = require_whole(place, {})
    trials = run.table("trials")
    outcomes = set(zip(trials["storage_format"], trials["outcome"], strict=True))
    assert outcomes == {("npy", "ok"), ("memmap", "error"), ("lmdb", "crash")}
    moments = [run.manifest.started_at, *trials["started_at"], run.manifest.ended_at]
    assert [moment[:19] for moment in moments] == sorted(moment[:19] for moment in moments)


def test_a_site_whose_build_is_killed_stays_as_it_was(tmp_path: Path) -> None:
    """Until the new one is whole the old site is there; the next build ends."""
    made = tmp_path / "made"
    (made / "site").mkdir(parents=True)
    for name in (".feedrate", "old.html"):
        (made / "site" / name).write_text("before")
    command = [sys.executable, "-m", "feedrate", "site", "--results", str(tmp_path / "results"), "--out", str(made)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while not (made / "site.next" / "index.html").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert {path.name: path.read_text() for path in (made / "site").iterdir()} == {
        ".feedrate": "before",
        "old.html": "before",
    }
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    assert (made / "site" / "index.html").exists()
    assert not (made / "site" / "old.html").exists()
