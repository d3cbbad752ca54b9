"""What befalls a real sweep: kills, full disks, plug-ins that fail, a clock that is set back; and a killed build."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sweeping import Place, family

from feedrate.machine.probes.procfs import semaphores, shm_segments
from feedrate.plan import request
from feedrate.plan.options import SweepOptions
from feedrate.schema.plugins import ROOT
from feedrate.share import validator
from feedrate.store import runs

pytestmark = pytest.mark.slow

MARK = "FEEDRATE_GROUND"
"""In the environment of every process that a ground starts, and of theirs."""
MATRIX = """
version: 1
protocol: {warmup_s: 0.02, window_s: 0.05, min_steps: 2, blocks: [1, 1], timeout_s: 20}
suites:
  loader: {mode: load, patch_size: 16, n_samples: 32, storage_format: FORMATS, num_workers: WORKERS,
           batch_size: BATCHES}
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
SET_BACK = """
import sys
from datetime import datetime, timedelta
from feedrate.__main__ import run
from feedrate.sweep import observer, record, run as active, sweep
class Back(datetime):
    looks = 0
    @classmethod
    def now(cls, tz=None):
        cls.looks += 1
        return datetime.now(tz) - timedelta(hours=cls.looks > 1)
for module in (observer, record, active, sweep):
    module.datetime = Back
sys.exit(run())
"""
"""A sweep whose clock goes back by an hour after its first look."""


class Ground(Place):
    """A folder for sweeps, whose processes can be told from all others."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.plan()
        self.temporary = tempfile.mkdtemp(prefix="f-")  # workers make sockets there, whose paths must be short
        self.environment = {MARK: str(folder), "TMPDIR": self.temporary, "COLUMNS": "400"}
        self._segments = shm_segments()

    def plan(self, formats: str = "lmdb", workers: str = "0", batches: str = "8") -> None:
        """Write the matrix: one block, whose template imports torch once."""
        text = MATRIX.replace("FORMATS", formats).replace("WORKERS", workers).replace("BATCHES", batches)
        self.matrix.write_text(text)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a command, by default a sweep."""
        pipe, env = subprocess.PIPE, os.environ | self.environment
        stdout = {"stdout": pipe, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL, "text": True}
        return subprocess.Popen(words or self.command(), cwd=ROOT, env=env, start_new_session=True, **stdout)

    def ended(self) -> dict[str, float | None]:
        """Measurements that have ended: id to speed."""
        with suppress(FileNotFoundError):
            return {row["trial"]["trial_id"]: row["trial"].get("samples_per_s") for row in self.journal()}
        return {}

    def run(self, *words: str, statuses: tuple[int, ...] = (0,), says: str = "") -> str:
        """Run a command to its end, which must be of a status and without a traceback; nothing may be left."""
        process = self.begin(*words)
        printed, _ = process.communicate(timeout=240)
        assert process.returncode in statuses, printed
        assert re.search(says, " ".join(printed.split())), printed
        assert "Traceback (most recent call last)" not in re.sub(r"(?s)error: .*", "", printed), printed
        assert self.left() == []
        return printed

    def left(self) -> list[str]:
        """What outlives a command: processes, once they had time to end, and shared memory whose owner is gone."""
        until = time.monotonic() + 15
        while (living := list(self._processes())) and time.monotonic() < until:
            time.sleep(0.05)
        lost = [f"process {process.pid}" for process in living]
        for process in living:
            with suppress(psutil.Error):
                process.kill()
        return lost + [f"segment {name}" for name in shm_segments() - self._segments if not owned(name)]

    def _processes(self) -> Iterator[psutil.Process]:
        mark = f"{MARK}={self.folder}\0".encode()
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                process = psutil.Process(pid)
                marked = mark in Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def require_whole(self, ended: Mapping[str, float | None], results: Path | None = None) -> runs.StoredRun:
        """There is one run, valid, with every planned setting and every measurement that had ended."""
        results = results or self.results
        (run,) = runs.runs(results)
        trials = run.table("trials").set_index("trial_id")
        speeds = trials["samples_per_s"].astype(object).where(trials["samples_per_s"].notna(), None).to_dict()
        assert {name: speeds.get(name, "lost") for name in ended} == ended
        options = SweepOptions(matrix=self.matrix, results=results, data_root=self.data)
        assert {cell.cell_id for cell in request.make(options).plan.all_cells} <= set(trials["cell_id"])
        assert not validator.check(run.folder, results).findings
        assert not list(results.rglob("*.tmp"))
        return run


def owned(segment: str) -> bool:
    """Whether the process that made a segment lives, whose id stands in the name, or one that has it open."""
    if any(psutil.pid_exists(int(number)) for number in re.findall(r"\d{2,}", segment)):
        return True
    return any(path.name == segment for pid in psutil.pids() for path in semaphores(pid))


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_a_sweep_under_kills_loses_nothing(ground: Ground) -> None:
    """Parent, template, trials and workers are killed at random: no measurement that had ended is lost."""
    ground.plan("[memmap, lmdb]", "[0, 2]", "[4, 8]")
    draw, process, resumed, ended = random.Random(8), ground.begin(), False, dict[str, float | None]()
    victims = ["trial", "worker", "template", "trial"]  # few: most measurements are to end well
    while process.poll() is None:
        time.sleep(draw.expovariate(5))
        ended = ground.ended() | ended
        if not resumed and len([speed for speed in ended.values() if speed]) >= 2:
            process.kill()
            process.communicate()
            ended = ground.ended() | ended
            assert ground.left() == []
            process, resumed = ground.begin(), True
        elif victims and (living := family(process)[victims[-1]]):
            with suppress(psutil.Error):
                draw.choice(living).kill()
                victims.pop()
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert "Traceback (most recent call last)" not in printed
    assert resumed
    assert "template" not in victims
    assert ground.left() == []
    ground.require_whole(ended)


def on_disk(ground: Ground, name: str, size: str, script: str) -> list[str]:
    """A shell's words with a small disk of its own as a folder; ``$SWEEP`` in them is the sweep's command."""
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("mounting a small file system takes root")
    folder = ground.folder / name
    folder.mkdir()
    words = script.replace("$SWEEP", shlex.join(ground.command())).replace("DISK", str(folder))
    return ["unshare", "-m", "bash", "-c", f"mount -t tmpfs -o size={size} none {folder} && {words}"]


@pytest.mark.parametrize(
    ("name", "size", "before", "says"),
    [("data", "60k", "", NO_ROOM), ("results", "64m", "mount -o remount,ro DISK &&", "(?i)read-only|written")],
    ids=["data full", "results read-only"],
)
def test_a_disk_that_takes_nothing_is_a_message(ground: Ground, name: str, size: str, before: str, says: str) -> None:
    """What cannot be written is said without a traceback, and nothing is left running."""
    ground.run(*on_disk(ground, name, size, f"{before} exec $SWEEP"), statuses=(1, 2), says=says)


def test_where_results_found_no_room_the_next_sweep_goes_on(ground: Ground) -> None:
    """The disk fills up in the middle: a message; with more room the same command loses nothing of what had ended."""
    ground.plan("[memmap, lmdb]", batches="[1, 2, 4, 8]")
    steps = ("$SWEEP", "echo ended $?", "cp -r DISK DISK-full", "mount -o remount,size=64m DISK", "$SWEEP")
    words = on_disk(ground, "results", "28k", "; ".join((*steps, "end=$?", "cp -r DISK DISK-whole", "exit $end")))
    printed = ground.run(*words, says=NO_ROOM)
    assert re.search("ended [12]", printed), printed
    ground.results = ground.folder / "results-full"
    ended = ground.ended()
    assert ended
    ground.require_whole(ended, ground.folder / "results-whole")


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> runs.StoredRun:
    """A sweep in which two of three plug-ins fail, and whose clock goes back by an hour between two measurements."""
    ground = Ground(tmp_path_factory.mktemp("troubled"))
    ground.plan("[memmap, lmdb, npy]")
    (ground.folder / "sitecustomize.py").write_text(BROKEN)
    (ground.folder / "back.py").write_text(SET_BACK)
    ground.environment["PYTHONPATH"] = f"{ground.folder}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    words = ground.command()
    ground.run(words[0], str(ground.folder / "back.py"), *words[words.index("sweep") :])
    return ground.require_whole({})


def test_a_plug_in_that_fails_costs_its_own_settings(troubled: runs.StoredRun) -> None:
    """One raises while packing, one dies of a segmentation fault in a trial: rows say so, all others are measured."""
    trials = troubled.table("trials")
    outcomes = set(zip(trials["storage_format"], trials["outcome"], strict=True))
    assert outcomes == {("npy", "ok"), ("memmap", "error"), ("lmdb", "crash")}


def test_a_clock_that_is_set_back_spoils_no_run(troubled: runs.StoredRun) -> None:
    """The run is valid, and none of its moments lies before the one ahead of it."""
    moments = [troubled.manifest.started_at, *troubled.table("trials")["started_at"], troubled.manifest.ended_at]
    assert [moment[:19] for moment in moments] == sorted(moment[:19] for moment in moments)


def test_a_site_whose_build_is_killed_stays_as_it_was(ground: Ground) -> None:
    """Until the new one is whole the old site is there; the next build ends."""
    made = ground.folder / "made"
    (made / "site").mkdir(parents=True)
    for name in (".feedrate", "old.html"):
        (made / "site" / name).write_text("before")
    words = (sys.executable, "-m", "feedrate", "site", "--results", str(ground.results), "--out", str(made))
    process = ground.begin(*words)
    while not (made / "site.next" / "index.html").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert ground.left() == []
    assert {path.name: path.read_text() for path in (made / "site").iterdir()} == {
        ".feedrate": "before",
        "old.html": "before",
    }
    ground.run(*words)
    assert (made / "site" / "index.html").exists()
    assert not (made / "site" / "old.html").exists()
