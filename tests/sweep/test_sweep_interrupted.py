"""What a real sweep survives: kills, data that changes or is damaged, a standstill, Ctrl-C; and what it never tells."""

from __future__ import annotations

import contextlib
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
from sweeping import Place, family, printed_by

from feedrate.schema.plugins import ROOT
from feedrate.share import rules, submission
from feedrate.store import runs

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
    """A sweep that was killed, resumed, killed, and begun afresh with another photograph, until Ctrl-C."""

    place: Place
    killed: Entries
    """Its journal after the first kill."""
    resumed: Entries
    """And after the second."""
    archived: list[runs.StoredRun]
    """What its archive held after each kill."""
    printed: dict[str, str]


def require_gone(processes: list[psutil.Process], within_s: float = 0) -> None:
    """None of them runs; the dead may wait to be reaped."""
    _, there = psutil.wait_procs(processes, timeout=within_s)
    assert not [process for process in there if process.status() != psutil.STATUS_ZOMBIE]


def kill(place: Place, process: subprocess.Popen[str], trials: int) -> str:
    """Kill a sweep's parent outright when journals hold so many trials; nobody whom it started stays."""
    place.wait_for_trials(trials)
    started = psutil.Process(process.pid).children(recursive=True)
    assert started
    process.kill()
    printed, _ = process.communicate()
    require_gone(started, within_s=30)
    return printed


def unpacked(archive: Path, folder: Path) -> runs.StoredRun:
    """The one run that an archive holds."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (run,) = runs.runs(folder / "results")
    return run


def held(trial: psutil.Process) -> bool:
    """Stop a trial, unless it has ended: all others can be stopped before it does."""
    with contextlib.suppress(psutil.Error):
        trial.suspend()
        return trial.status() == psutil.STATUS_STOPPED
    return False


def interrupted_in_trouble(place: Place, process: subprocess.Popen[str], trials: int) -> str:
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
    place.wait_for_trials(trials + 5)
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    require_gone(started)
    return printed


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("interrupted") / MINE
    photographs, archive = folder / "photographs", folder / "kept.tar.gz"
    photographs.mkdir(parents=True)
    for name in ("astronaut.png", "coffee.png"):
        shutil.copy(Path(skimage.data.__file__).with_name(name), photographs)
    place = Place(folder)
    place.matrix.write_text(MATRIX)
    words = ("--data", str(photographs), "--seed", "3", "--archive", str(archive))
    printed = {"killed": kill(place, place.start(*words), 2)}
    killed = place.journal()
    archived = [unpacked(archive, folder / "first")]
    printed["resumed"] = kill(place, place.start(*words), len(killed) + 1)
    resumed = place.journal()
    archived.append(unpacked(archive, folder / "second"))
    Image.new("RGB", (64, 64), "blue").save(photographs / "coffee.png")
    printed["refused"] = printed_by(*place.command(*words), status=2)
    fresh = place.start("--fresh", *words)
    place.wait_for_trials(len(resumed) + 1)
    printed["second"] = printed_by(*place.command(*words), status=2)
    printed["fresh"] = interrupted_in_trouble(place, fresh, len(place.journal()))
    return Story(place, killed, resumed, archived, printed)


def ids(entries: Entries) -> list[str]:
    return [entry["trial"]["trial_id"] for entry in entries]


def test_ctrl_c_before_anything_was_measured(tmp_path: Path) -> None:
    """Ctrl-C while torch is imported ends at once, with one line and nothing written."""
    place = Place(tmp_path)
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


def test_a_killed_sweep_resumes_where_it_was(story: Story) -> None:
    """A kill -9 of the parent loses at most the running trial; the same command resumes, and repeats none.

    Its archive holds every trial that had ended, and is valid, before and after.
    """
    assert f"{len(story.killed)} measurements are there already" in story.printed["resumed"]
    assert story.resumed[: len(story.killed)] == story.killed
    assert len(set(ids(story.resumed))) == len(story.resumed)
    for entries, run in zip((story.killed, story.resumed), story.archived, strict=True):
        assert not rules.judge(run.folder, in_place=True).findings
        assert set(ids(entries)) <= set(run.table("trials")["trial_id"])


def test_data_that_changed_are_refused(story: Story) -> None:
    """Until --fresh closes the run that began with others: it keeps what it had, and is valid."""
    assert "the data changed since it began (folder)" in story.printed["refused"]
    closed, _ = runs.runs(story.place.results)
    assert closed.manifest.stop_reason == "interrupted"
    assert list(closed.table("trials")["trial_id"]) == ids(story.resumed)
    assert not rules.judge(closed.folder, in_place=True).findings


def test_ctrl_c_keeps_what_had_ended_and_damage_is_rows(story: Story) -> None:
    """Status 130, every trial in parquet, failed ones with their reason; a standstill is said; no traceback."""
    _, run = runs.runs(story.place.results)
    trials = run.table("trials")
    assert run.manifest.stop_reason == "interrupted"
    assert len(trials) >= 8
    assert set(trials.loc[trials["outcome"] == "error", "error_kind"]) == {"DataError"}
    assert "× error: DataError" in story.printed["fresh"]
    assert re.search("stood still for [3-5] s", story.printed["fresh"])
    assert not re.search("^Traceback", story.printed["fresh"], re.MULTILINE)


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
    closed, run = runs.runs(story.place.results)
    prepared = submission.prepare(run)
    assert all(name.startswith(f"results/{run.manifest.machine.machine_id}") for name in prepared.files)
    assert named([*texts(closed.folder), *texts(run.folder), *prepared.files, prepared.body], names) == set()
    failed = run.table("trials").query("outcome != 'ok'")
    assert failed["error_message"].str.len().gt(0).all()
