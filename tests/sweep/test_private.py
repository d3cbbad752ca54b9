"""Nothing by which this machine or its user could be found is in what a real sweep writes, failures included."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
import shutil
import signal
import socket
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skimage.data
from sweeping import Place

from feedrate.schema.plugins import ROOT
from feedrate.share import submission
from feedrate.store import runs

pytestmark = pytest.mark.slow

MATRIX = """
version: 1
protocol: {warmup_s: 0.05, window_s: 0.1, min_steps: 2, blocks: [1, 1000], ci_target_pct: 0.001, timeout_s: 30}
suites:
  loader: {mode: load, workload: folder, patch_size: 16, n_samples: 64, storage_format: [png, lmdb], batch_size: 8,
           num_workers: [0, 1]}
profiles: {quick: {}}
"""
MINE = "secret-project-of-zelda"
"""A folder above the photographs and the packed samples, which errors name."""
_FILES = (
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
    "/proc/sys/kernel/random/boot_id",
    "/sys/class/dmi/id/product_uuid",
    "/sys/class/dmi/id/product_serial",
    "/sys/class/dmi/id/board_serial",
    "/sys/class/dmi/id/chassis_serial",
)
_GLOBS = (
    ("/sys/block", "*/device/serial"),
    ("/sys/block", "*/device/wwid"),
    ("/sys/block", "*/serial"),
    ("/sys/block", "*/uuid"),
    ("/sys/class/nvme", "*/serial"),
    ("/sys/class/net", "*/address"),
    ("/proc/driver/nvidia/gpus", "*/information"),
)
_ANYBODYS = {"", "localhost", "root", "user", "debian", "ubuntu", "linux", "none", "127.0.0.1", "00:00:00:00:00:00"}
"""Names that tell nobody from anybody."""


def _read(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text(errors="replace").splitlines()
    except OSError:  # for root alone, or for nobody
        return


def own_names(*more: str) -> set[str]:
    """Everything that this machine and its user call themselves, as far as it can be read here."""
    home = Path.home()
    found = {socket.gethostname(), os.uname().nodename, home.name, str(home), str(ROOT), str(Path.cwd()), *more}
    found |= {name for key in ("USER", "LOGNAME", "HOSTNAME", "SSH_CLIENT") if (name := os.environ.get(key))}
    with contextlib.suppress(KeyError, OSError):  # a user id without a name, as in many containers
        found |= {getpass.getuser(), pwd.getpwuid(os.getuid()).pw_gecos.split(",")[0]}
    found |= {each.address.partition("%")[0] for held in psutil.net_if_addrs().values() for each in held}
    places = [*map(Path, _FILES), *(path for root, pattern in _GLOBS for path in Path(root).glob(pattern))]
    for path in places:
        for line in _read(path):
            told = re.findall(r"GPU-[0-9a-f-]{36}", line) if "nvidia" in str(path) else [line.strip()]
            found.update(told)
    found |= {path.name for path in Path("/dev/disk/by-uuid").glob("*")}
    return {name for name in found if len(name) > 2 and name.lower() not in _ANYBODYS}


def named(said: Iterable[str], names: Iterable[str]) -> set[str]:
    """Which names stand in some texts as words of their own."""
    whole = "\n".join(said)
    return {
        name
        for name in names
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", whole, flags=re.IGNORECASE)
    }


def texts(folder: Path) -> Iterator[str]:
    """Every text of a run: the manifest wherever it stands, and every value of every column, decoded."""
    yield (folder / "run.json").read_text()
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        yield from (value.decode() for value in (table.schema.metadata or {}).values())
        for column in table.columns:
            yield from column.cast(pa.string()).unique().drop_null().to_pylist()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over photographs whose packed samples are destroyed while it runs, stopped by Ctrl-C."""
    folder = tmp_path_factory.mktemp("private") / MINE
    (folder / "photographs").mkdir(parents=True)
    for name in ("astronaut.png", "coffee.png"):
        shutil.copy(Path(skimage.data.__file__).with_name(name), folder / "photographs")
    sweep = Place(folder, folder / "data")
    sweep.matrix.write_text(MATRIX)
    process = sweep.start("--data", str(folder / "photographs"))
    sweep.wait_for_trials(4)
    for path in sweep.data.glob("folder-*/**/*"):
        if path.suffix in (".png", ".mdb"):
            path.write_bytes(b"not what it was")
    sweep.wait_for_trials(14)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert not [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert "× error: DataError" in printed
    assert not re.search("^Traceback", printed, re.MULTILINE)
    return folder


def test_ctrl_c_keeps_what_had_ended_and_a_damaged_set_is_rows(place: Path) -> None:
    """Status 130, no process left, and every trial in parquet: those that failed with their reason."""
    (run,) = runs.runs(place / "results")
    trials = run.table("trials")
    assert run.manifest.stop_reason == "interrupted"
    assert len(trials) >= 14
    assert set(trials.loc[trials["outcome"] == "error", "error_kind"]) == {"DataError"}


def test_no_name_of_this_machine_is_in_any_file(place: Path) -> None:
    """Manifest, settings, numbers and error messages of a run with failures name nobody and no place."""
    (run,) = runs.runs(place / "results")
    trials = run.table("trials")
    failed = trials[trials["outcome"].ne("ok")]
    assert len(failed), "nothing failed: the messages of errors were not tried"
    assert failed["error_message"].str.len().gt(0).all()
    names = own_names(MINE, "zelda", str(place), place.parent.name)
    assert {MINE, str(ROOT)} <= names
    assert named(texts(run.folder), names) == set()


def test_nor_in_what_is_submitted(place: Path, tmp_path: Path) -> None:
    """The file that can be attached names nobody either, under paths that every run has, and unpacks as it is."""
    (run,) = runs.runs(place / "results")
    prepared = submission.prepare(run)
    path = submission.pack(prepared, tmp_path)
    assert all(name.startswith(f"results/{run.manifest.machine.machine_id}") for name in prepared.files)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    (again,) = runs.runs(tmp_path / "results")
    assert {each.name: each.read_bytes() for each in again.folder.iterdir()} == {
        name.rpartition("/")[2]: data for name, data in prepared.files.items()
    }
    # Compressed columns hide a name from whoever looks at the bytes alone.
    said = [*texts(again.folder), *prepared.files, path.name, prepared.body]
    assert named(said, own_names(MINE, "zelda", str(place), place.parent.name)) == set()
