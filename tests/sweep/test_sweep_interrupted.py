"""What a real sweep survives: kills, data that changes or is damaged, a standstill, Ctrl-C; and what it never tells."""

from __future__ import annotations

import contextlib
import copy
import getpass
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skimage.data
from PIL import Image
from sweeping import Place, family, until

from feedrate.schema.plugins import ROOT
from feedrate.share import rules, submission
from feedrate.store import runs
from feedrate.sweep.launcher import Template

pytestmark = pytest.mark.slow
"""Real sweeps; tests/test_end_to_end.py runs one in make test."""

MATRIX = """
version: 1
protocol: {warmup_s: 0.05, window_s: 0.2, min_steps: 2, blocks: [1, 1000], ci_target_pct: 0.001, timeout_s: 10}
suites:
  loader: {mode: load, workload: folder, patch_size: 16, n_samples: 64, storage_format: [png, lmdb],
           batch_size: [2, 4, 8, 16], num_workers: [0, 1]}
profiles: {quick: {}}
"""
MINE = "secret-project-of-zelda"
"""A folder above the photographs and the packed samples, which errors name."""
_SERIALS = (
    *("/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id"),
    *("/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/*_serial", "/sys/class/net/*/address"),
    *("/sys/block/*/device/serial", "/sys/block/*/device/wwid", "/sys/block/*/serial", "/sys/block/*/uuid"),
    *("/sys/class/nvme/*/serial", "/proc/driver/nvidia/gpus/*/information"),
)
_ANYBODYS = {"", "localhost", "root", "user", "debian", "ubuntu", "linux", "none", "127.0.0.1", "00:00:00:00:00:00"}
"""Names that tell nobody from anybody."""

Entries = list[dict[str, Any]]


@dataclass
class Story:
    """A sweep that was killed, resumed and ended by Ctrl-C; its copy was begun afresh with another photograph."""

    place: Place
    copy: Place
    killed: Entries
    """Its journal when it was killed."""
    archived: runs.StoredRun
    """What its archive held then."""
    printed: dict[str, str]


def require_gone(processes: list[psutil.Process], within_s: float = 0) -> None:
    """None of them runs; the dead may wait to be reaped."""
    _, there = psutil.wait_procs(processes, timeout=within_s)
    assert not [process for process in there if process.status() != psutil.STATUS_ZOMBIE]


def killed(place: Place, process: subprocess.Popen[str]) -> Entries:
    """Kill a worker, a trial and at last the parent outright; nobody whom it started stays: the journal."""

    def struck(victim: str, outcome: str) -> bool:
        for member in family(process)[victim][:1]:
            with contextlib.suppress(psutil.Error):
                member.kill()
        return outcome in {entry["trial"]["outcome"] for entry in place.journal()}

    place.wait_for_trials(1)
    until(lambda: struck("worker", "error"))
    until(lambda: struck("trial", "crash"))
    place.wait_for_trials(len(place.journal()) + 2)
    started = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    require_gone(started, within_s=30)
    return place.journal()


def held(trial: psutil.Process) -> bool:
    """Stop a trial, unless it has ended: all others can be stopped before it does."""
    with contextlib.suppress(psutil.Error):
        trial.suspend()
        return trial.status() == psutil.STATUS_STOPPED
    return False


def end_by_ctrl_c(process: subprocess.Popen[str]) -> str:
    """Type Ctrl-C into a sweep; what it had printed when it ended with the status of that."""
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    return printed


def interrupted_in_trouble(place: Place, process: subprocess.Popen[str]) -> str:
    """All processes stand still for 3 s, packed samples are destroyed, and Ctrl-C ends the sweep."""
    parent = psutil.Process(process.pid)
    before = family(process)["trial"]
    while not (begun := [trial for trial in family(process)["trial"] if trial not in before]) or not held(begun[0]):
        time.sleep(0.005)
    standing = [parent, *parent.children(recursive=True)]
    for member in standing:
        with contextlib.suppress(psutil.Error):
            member.suspend()
    time.sleep(3)
    for member in standing:
        with contextlib.suppress(psutil.Error):
            member.resume()
    for path in place.data.glob("folder-*/**/*"):
        if path.suffix in (".png", ".mdb"):
            path.write_bytes(b"not what it was")
    place.wait_for_trials(len(place.journal()) + 5)
    started = parent.children(recursive=True)
    printed = end_by_ctrl_c(process)
    require_gone(started)
    return printed


def begun_afresh(place: Place, *words: str) -> None:
    """Close an unfinished run and begin another, which Ctrl-C ends after its first trial."""
    (journal,) = place.results.glob("*/*/journal.jsonl")
    process = place.start("--fresh", *words)
    until(lambda: not journal.exists())
    place.wait_for_trials(1)
    end_by_ctrl_c(process)


def archived(archive: Path, folder: Path) -> runs.StoredRun:
    """The one run that an archive holds, which is valid."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (run,) = runs.runs(folder / "results")
    assert not rules.judge(run.folder, in_place=True).findings
    return run


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, template: Template) -> Story:
    folder = tmp_path_factory.mktemp("interrupted") / MINE
    photographs, archive, printed = folder / "photographs", folder / "kept.tar.gz", {}
    photographs.mkdir(parents=True)
    for name in ("astronaut.png", "coffee.png"):
        shutil.copy(Path(skimage.data.__file__).with_name(name), photographs)
    place = Place(folder)
    place.matrix.write_text(MATRIX)
    words = ("--data", str(photographs), "--seed", "3")
    entries = killed(place, place.start("--archive", str(archive), *words))
    kept = archived(archive, folder / "before")
    copied = copy.copy(place)
    copied.results = shutil.copytree(place.results, folder / "copy")
    coffee = (photographs / "coffee.png").read_bytes()
    Image.new("RGB", (64, 64), "blue").save(photographs / "coffee.png")
    printed["refused"] = copied.sweep(template, *words, status=2)
    begun_afresh(copied, *words)
    (photographs / "coffee.png").write_bytes(coffee)
    resumed = place.start("--archive", str(archive), *words)
    place.wait_for_trials(len(entries) + 1)
    printed["second"] = place.sweep(template, *words, status=2)
    printed["resumed"] = interrupted_in_trouble(place, resumed)
    return Story(place, copied, entries, kept, printed)


def test_ctrl_c_before_anything_was_measured(tmp_path: Path) -> None:
    """Ctrl-C while torch is imported ends at once, with one line and nothing written."""
    place = Place(tmp_path)
    process = place.start()
    assert process.stdout is not None
    while "Starting" not in (line := process.stdout.readline()):
        assert line
    while not psutil.Process(process.pid).children():
        time.sleep(0.01)
    assert end_by_ctrl_c(process).strip() == "Interrupted before a measurement had ended: nothing was written."
    assert not list(place.results.glob("*/*/"))


def test_a_killed_sweep_resumes_where_it_was(story: Story) -> None:
    """A kill -9 of the parent loses at most the running trial; the same command resumes, and repeats none.

    A killed trial and a killed worker are rows. Its archive holds every trial that had ended, before and after.
    """
    before = {entry["trial"]["trial_id"]: entry["trial"].get("samples_per_s") for entry in story.killed}
    assert {entry["trial"]["outcome"] for entry in story.killed} == {"ok", "crash", "error"}
    assert f"{len(before)} measurements are there already" in story.printed["resumed"]
    (run,) = runs.runs(story.place.results)
    folder = story.place.matrix.parent
    for resumed in (story.archived, run, archived(folder / "kept.tar.gz", folder / "after")):
        trials = resumed.table("trials").set_index("trial_id")["samples_per_s"]
        assert trials.index.is_unique
        speeds = trials.astype(object).where(trials.notna(), None)
        assert {name: speeds[name] for name in before} == before


def test_data_that_changed_are_refused(story: Story) -> None:
    """Until --fresh closes the run that began with others: it keeps what it had, and is valid."""
    assert "the data changed since it began (folder)" in story.printed["refused"]
    closed, _ = runs.runs(story.copy.results)
    assert closed.manifest.stop_reason == "interrupted"
    assert list(closed.table("trials")["trial_id"]) == [entry["trial"]["trial_id"] for entry in story.killed]
    assert not rules.judge(closed.folder, in_place=True).findings


def test_ctrl_c_keeps_what_had_ended_and_damage_is_rows(story: Story) -> None:
    """Status 130, every trial in parquet, failed ones with their reason; a standstill is said; no traceback."""
    (run,) = runs.runs(story.place.results)
    trials = run.table("trials").iloc[len(story.killed) :]
    assert run.manifest.stop_reason == "interrupted"
    assert len(trials) >= 6
    assert set(trials.loc[trials["outcome"] == "error", "error_kind"]) == {"DataError"}
    assert "× error: DataError" in story.printed["resumed"]
    assert re.search("stood still for [3-5] s", story.printed["resumed"])
    assert not re.search("^Traceback", story.printed["resumed"], re.MULTILINE)


def test_a_second_sweep_of_the_machine_is_refused(story: Story) -> None:
    """While one runs, another is told so, and disturbs it not."""
    assert "another sweep is running here" in " ".join(story.printed["second"].split())


def own_names(folder: Path) -> set[str]:
    """Everything that this machine and its user call themselves, as far as it can be read here."""
    home = Path.home()
    names = {socket.gethostname(), os.uname().nodename, home.name, str(home), str(ROOT), str(Path.cwd())}
    names |= {MINE, "zelda", str(folder), folder.parent.name}
    names |= {os.environ.get(key, "") for key in ("USER", "LOGNAME", "HOSTNAME", "SSH_CLIENT")}
    with contextlib.suppress(KeyError, OSError):  # a user id without a name, as in many containers
        names |= {getpass.getuser(), pwd.getpwuid(os.getuid()).pw_gecos.split(",")[0]}
    names |= {address.address.partition("%")[0] for held in psutil.net_if_addrs().values() for address in held}
    for path in (path for pattern in _SERIALS for path in Path("/").glob(pattern[1:])):
        with contextlib.suppress(OSError):  # for root alone, or for nobody
            text = path.read_text(errors="replace")
            names.update(re.findall(r"GPU-[0-9a-f-]{36}", text) if "nvidia" in str(path) else text.split("\n"))
    names |= {path.name for path in Path("/dev/disk/by-uuid").glob("*")}
    return {name.strip() for name in names if len(name) > 2 and name.strip().lower() not in _ANYBODYS}


def named(texts: Iterable[str], names: Iterable[str]) -> set[str]:
    """Which names stand in some texts as words of their own."""
    whole = "\n".join(texts)
    return {name for name in names if re.search(rf"(?i)(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", whole)}


def texts(folder: Path) -> Iterator[str]:
    """Every text of a run: the manifest wherever it stands, and every value of every column, decoded."""
    yield (folder / "run.json").read_text()
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        yield from (value.decode() for value in (table.schema.metadata or {}).values())
        for column in table.columns:
            yield from column.cast(pa.string()).unique().drop_null().to_pylist()


def test_no_name_of_this_machine_is_in_a_run_or_its_submission(story: Story) -> None:
    """Manifest, numbers and error messages name nobody and no place, nor do the paths and the text of a submission."""
    names = own_names(story.place.matrix.parent)
    assert {MINE, str(ROOT)} <= names
    assert named([f"in {ROOT}/x"], names) >= {str(ROOT)}
    closed, _ = runs.runs(story.copy.results)
    (run,) = runs.runs(story.place.results)
    prepared = submission.prepare(run)
    assert all(name.startswith(f"results/{run.manifest.machine.machine_id}") for name in prepared.files)
    assert named([*texts(closed.folder), *texts(run.folder), *prepared.files, prepared.body], names) == set()
    failed = run.table("trials").query("outcome != 'ok'")
    assert failed["error_message"].str.len().gt(0).all()
