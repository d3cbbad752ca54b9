"""`make div2k`, from the server to sub-images, whatever happens on the way."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from beside import tried
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PILImage
from urllib3.util import Retry

from feedrate.downloads import crops, div2k
from feedrate.machine import linux
from feedrate.schema.errors import DataError, EnvironmentFault, InputError
from feedrate.schema.plugins import ROOT

Fetch = Callable[..., Path]
Start = Callable[..., "subprocess.Popen[str]"]
Files = Callable[[Path], dict[str, bytes]]
PATIENCE_S = 120
"""An fsync waits for all that is on its way to the disk: gigabytes, where something was just installed."""
DRIVER = """
import json, resource, sys
from pathlib import Path
from rich.console import Console
from urllib3.util import Retry
from feedrate.downloads import div2k
from feedrate.downloads.transfer import Remote
from feedrate.schema.errors import FeedrateError
part, root, archive, most = json.loads(sys.argv[1])
if most:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
parts = {"train": div2k.Part(Remote(**part.pop("remote")), **part)}
try:
    div2k.fetch("train", Path(root), Console(), archive and Path(archive), parts, Retry(2))
except FeedrateError as error:
    sys.exit(f"{type(error).__name__}: {error}")
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def fetch(tiny: Any, screen: Any, hasty: Retry, tmp_path: Path) -> Fetch:
    """Call it with the tiny archive: split, archive."""

    def call(split: str = "train", archive: Path | None = None) -> Path:
        return div2k.fetch(split, tmp_path / "data", screen, archive, {"train": tiny.part}, hasty)

    return call


@pytest.fixture
def start(tiny: Any) -> Iterator[Start]:
    """Start the real thing in a process of its own: data root, archive, most bytes of a file."""
    running: list[subprocess.Popen[str]] = []

    def begin(root: Path, archive: Path | None = None, most: int = 0) -> subprocess.Popen[str]:
        told = json.dumps([asdict(tiny.part), os.fspath(root), archive and os.fspath(archive), most])
        command, pipe = [sys.executable, "-c", DRIVER, told], subprocess.PIPE
        running.append(subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT, text=True))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def end_of(process: subprocess.Popen[str], status: int) -> str:
    """What a process has said when it ends; never a traceback."""
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, said
    assert "Traceback" not in said
    return said


def workers() -> list[psutil.Process]:
    """Children of this process that cut."""
    children = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in children if "spawn_main" in " ".join(each.cmdline())]


def until(done: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something that a running process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not done() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)


@given(length=st.integers(crops.SIZE, 3000))
def test_geometry(length: int) -> None:
    """Sub-images lie every 240 pixels, cover a side without a gap, end at its end, and begin at different places."""
    found = [left for _, left in crops.corners(crops.SIZE, length)]
    assert (found[0], found[-1]) == (0, length - crops.SIZE)
    steps = np.diff(found)
    assert (steps[:-1] == 240).all()
    assert not len(steps) or 0 < steps[-1] <= 240


def test_geometry_of_div2k() -> None:
    """A photograph of the usual size gives 8 × 5: 800 such would give 32,000, and DIV2K's own give 32,592."""
    corners = crops.corners(1356, 2040)
    assert (len(corners), corners[:2], corners[-1]) == (40, [(0, 0), (0, 240)], (876, 1560))
    assert crops.corners(479, 2040) == []


def test_facts() -> None:
    """What is published of DIV2K: 800 and 100 photographs, numbered on; sha256 and sizes of both archives."""
    train, valid = div2k.PARTS["train"], div2k.PARTS["valid"]
    assert [train.members[0], train.members[-1]] == ["DIV2K_train_HR/0001.png", "DIV2K_train_HR/0800.png"]
    assert [valid.members[0], valid.members[-1]] == ["DIV2K_valid_HR/0801.png", "DIV2K_valid_HR/0900.png"]
    for part in (train, valid):
        assert part.remote.url == f"https://data.vision.ee.ethz.ch/cvl/DIV2K/{part.folder}.zip"
        assert (part.remote.algorithm, len(part.remote.digest)) == ("sha256", 64)
    assert [train.remote.size, valid.remote.size] == [3_530_603_713, 448_993_893]


def test_download_and_cut(server: Any, tiny: Any, fetch: Fetch, screen: Any) -> None:
    """Terms first, then the archive, then the sub-images; the second time everything is there already."""
    served = server.serve("DIV2K_train_HR.zip", tiny.archive, breaks=[5000, 10_000])
    target = fetch()
    assert target.name == "DIV2K_train_HR_sub"
    assert crops.recorded(target) == len(list(target.glob("*/*.png"))) == 12
    assert screen.text.startswith("DIV2K is for academic research only")
    assert screen.text.index("academic") < screen.text.index("DIV2K_train_HR.zip: ")
    assert "can be deleted" in screen.text
    (target.parent / "DIV2K_train_HR.zip").unlink()
    asked = len(served.asked)
    assert fetch() == target
    assert len(served.asked) == asked
    assert "are there already" in screen.text
    assert workers() == []


@pytest.mark.parametrize("kind", ["zip", "folder", pytest.param("folder above", marks=pytest.mark.slow)])
def test_own_archive(tiny: Any, fetch: Fetch, server: Any, tmp_path: Path, kind: str, screen: Any) -> None:
    """The user's own copy is used where it lies, as published or unpacked; nothing is downloaded or copied.

    Every sub-image is that part of its photograph, bit for bit, row by row.
    """
    if kind == "zip":
        own = tiny.write(tmp_path / "mine.zip")
    else:
        own = tiny.unpack(tmp_path / "mine" / "DIV2K_train_HR")
        own = own.parent if kind == "folder above" else own
    target = fetch(archive=own)
    for name, data in tiny.photographs.items():
        pixels = np.asarray(PILImage.open(io.BytesIO(data)))
        stem = Path(name).stem
        for number, (top, left) in enumerate(itertools.product((0, 80), (0, 220)), 1):
            got = np.asarray(PILImage.open(target / stem / f"{stem}_s{number:03d}.png"))
            assert np.array_equal(got, pixels[top : top + crops.SIZE, left : left + crops.SIZE])
    assert len(list(target.rglob("*"))) == 1 + 3 + 12
    assert server.files["/DIV2K_train_HR.zip"].asked == []
    assert own.exists()
    assert "can be deleted" not in screen.text
    assert {path.name for path in target.parent.iterdir()} == {"DIV2K_train_HR_sub", ".downloads.lock"}


def test_goes_on(tiny: Any, fetch: Fetch, tmp_path: Path, screen: Any, files: Files) -> None:
    """What is cut stays, what is missing or was left half-written is cut; a set that lost a file is made anew."""
    own = tiny.write(tmp_path / "a.zip")
    target = fetch(archive=own)
    whole, kept = files(target), (target / "0002").stat()
    (target / "cut.json").unlink()
    (target / "0003").rename(target / ".0003.tmp")
    shutil.rmtree(target / "0001")
    fetch(archive=own)
    assert files(target) == whole
    assert (target / "0002").stat().st_mtime_ns == kept.st_mtime_ns
    assert "1 of 3 photographs are cut already" in screen.text
    (target / "0002" / "0002_s002.png").unlink()
    fetch(archive=own)
    assert files(target) == whole


def test_no_such_part(fetch: Fetch, tmp_path: Path) -> None:
    """A part that is none is named with the nearest that is one, and nothing is made."""
    with pytest.raises(InputError, match=r"SPLIT=trian: .*expected one of train \(did you mean 'train'\?\)"):
        fetch("trian")
    assert not (tmp_path / "data").exists()


def test_wrong_archives(tiny: Any, fetch: Fetch, tmp_path: Path) -> None:
    """Whatever is no archive of that part is refused with what it is and what was expected."""
    flipped = bytearray(tiny.archive)
    flipped[500] ^= 1
    for name, content in (("text", b"no archive"), ("half", tiny.archive[:-1000]), ("flipped", bytes(flipped))):
        (tmp_path / name).write_bytes(content)
    (tiny.unpack(tmp_path / "few") / "0002.png").unlink()
    with zipfile.ZipFile(tmp_path / "foreign", "w") as file:
        file.writestr("notes.txt", "x")
    with zipfile.ZipFile(tmp_path / "anew", "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in tiny.photographs.items():
            file.writestr(f"DIV2K_train_HR/{name}", data)
    for name, said in {
        "gone": "No such file or directory.*; expected DIV2K_train_HR.zip as published",
        "text": "File is not a zip file",
        "half": "File is not a zip file",
        "foreign": "has 0 of 3 photographs",
        "few": r"has 2 of 3 photographs; expected .*0001.png to 0003.png",
        "anew": r"right names, but the archive has [\d,]+ bytes; expected .*name the folder",
        "flipped": "right names, but the archive has the sha256 [0-9a-f]{64}; expected [0-9a-f]{64}: it is damaged",
    }.items():
        with pytest.raises(InputError, match=f"ARCHIVE={tmp_path / name}: .*{said}"):
            fetch(archive=tmp_path / name)
    assert not (tmp_path / "data" / "DIV2K_train_HR_sub").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"GIF89a", "0001.png: cannot identify image file"),
        (900, "0001.png: 900 x 900 pixels, L; expected RGB"),
        (479, "0001.png: 479 x 479 pixels, RGB; expected .*480 x 480 at least"),
        (None, "0001.png: .*truncated"),
    ],
)
def test_damaged_among_good_ones(tiny: Any, tmp_path: Path, fetch: Fetch, content: Any, said: str) -> None:
    """What is no photograph of DIV2K's kind is named with the reason; all others are cut, and no record is written."""
    photos = tiny.unpack(tmp_path / "photos")
    bad = photos / "0001.png"
    if isinstance(content, int):
        PILImage.new("L" if content == 900 else "RGB", (content, content)).save(bad)
    else:
        bad.write_bytes(bad.read_bytes()[: bad.stat().st_size // 2] if content is None else content)
    with pytest.raises(DataError, match=f"1 of 3 photographs cannot be used, such as {said}"):
        fetch(archive=photos)
    assert sorted(path.name for path in (tmp_path / "data" / "DIV2K_train_HR_sub").iterdir()) == ["0002", "0003"]


def test_no_room_is_seen_before_it_starts(
    server: Any, tiny: Any, fetch: Fetch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Archive and sub-images must fit before the first byte is asked for; with ARCHIVE= the sub-images must."""
    size, usage = len(tiny.archive), shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=round(4.6 * size)))
    with pytest.raises(EnvironmentFault, match=r"for the rest of the archive and .* for the sub-images\), .* are free"):
        fetch()
    assert server.files["/DIV2K_train_HR.zip"].asked == []
    assert not list((tmp_path / "data").glob("DIV2K*"))
    own = tiny.write(tmp_path / "own.zip")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size))
    with pytest.raises(EnvironmentFault, match=r"are needed \([^ ]+ [kM]B for the sub-images\)"):
        fetch(archive=own)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4 * size))
    fetch(archive=own)


@pytest.mark.parametrize("cutting", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_disk_that_fills_up(server: Any, tiny: Any, start: Start, tmp_path: Path, cutting: bool) -> None:
    """A disk that takes no more, in the download or while cutting, ends it with one line; later it continues."""
    root, own = tmp_path / "data", tiny.write(tmp_path / "own.zip") if cutting else None
    said = end_of(start(root, own, most=2000 if cutting else 20_000), 1)
    assert "EnvironmentFault" in said
    assert f"File too large while {'cutting' if cutting else 'downloading'}" in said
    end_of(start(root, own), 0)
    assert cutting or server.files["/DIV2K_train_HR.zip"].asked[-1]["Range"] == "bytes=20000-"


def test_folder_that_cannot_be_written(tiny: Any, fetch: Fetch, tmp_path: Path) -> None:
    """A file where a folder should be is named."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "DIV2K_train_HR_sub").write_text("")
    with pytest.raises(EnvironmentFault, match=r"DIV2K_train_HR_sub: .* while cutting; .*DATA_ROOT="):
        fetch(archive=tiny.write(tmp_path / "own.zip"))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def stopped(process: subprocess.Popen[str], root: Path, phase: str, how: signal.Signals) -> str:
    """Stop a process amid the download or the cutting, all of its children that are there with a Ctrl-C."""
    if phase == "download":
        until(lambda: _size(root / "DIV2K_train_HR.zip.part") >= 30_000, process)
    else:
        until(lambda: any((root / "DIV2K_train_HR_sub").glob(".*.tmp/*.png")), process)
    below = psutil.Process(process.pid).children() if process.poll() is None else []
    for each in (*below, process) if how is signal.SIGINT else (process,):
        each.send_signal(how)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert psutil.wait_procs(below, timeout=PATIENCE_S)[1] == []
    return said


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["download", "cutting"])
@tried
def test_killed(server: Any, tiny: Any, start: Start, fetch: Fetch, tmp_path: Path, files: Files, phase: str) -> None:
    """SIGKILL amid the download or the cutting: nothing half-written looks whole, and the same command goes on.

    It asks for no byte that had come, and ends with the same files; no process outlives it.
    """
    root, own = Path(tempfile.mkdtemp(dir=tmp_path)), tiny.write(tmp_path / "own.zip")
    expected = files(fetch(archive=own))
    served = server.serve("DIV2K_train_HR.zip", tiny.archive, stall=30_000)
    given = own if phase == "cutting" else None
    stopped(start(root, given), root, phase, signal.SIGKILL)
    target = root / "DIV2K_train_HR_sub"
    assert not (target / "cut.json").exists()
    served.go.set()
    end_of(start(root, given), 0)
    assert files(target) == expected
    assert given or int(served.asked[1]["Range"].removeprefix("bytes=").rstrip("-")) >= 30_000


@pytest.mark.slow
@pytest.mark.parametrize("point", range(0, 24, 3))
def test_killed_at_any_byte(
    server: Any, tiny: Any, start: Start, fetch: Fetch, tmp_path: Path, files: Files, point: int
) -> None:
    """Wherever it is killed, in the download or later, several times in a row, the end is the same."""
    expected = files(fetch(archive=tiny.write(tmp_path / "own.zip")))
    server.serve("DIV2K_train_HR.zip", tiny.archive, breaks=[len(tiny.archive) * point // 24, 1])
    root = tmp_path / "killed"
    target = root / "DIV2K_train_HR_sub"
    for attempt in range(3):
        process = start(root)
        time.sleep(0.15 + 0.04 * point + 0.1 * attempt)
        process.kill()
        process.wait()
        if target.exists():
            whole = {name: data for name, data in files(target).items() if not name.startswith(".")}
            assert whole.items() <= expected.items()
    end_of(start(root), 0)
    assert files(target) == expected
    assert (root / "DIV2K_train_HR.zip").read_bytes() == tiny.archive


@pytest.mark.parametrize("phase", [pytest.param("download", marks=pytest.mark.slow), "cutting"])
def test_interrupted(server: Any, tiny: Any, start: Start, tmp_path: Path, phase: str) -> None:
    """Ctrl-C ends it at once with a line that says how to go on; no process and no lock is left."""
    served = server.serve("DIV2K_train_HR.zip", tiny.archive, stall=30_000 if phase == "download" else None)
    for attempt in range(5):
        root = tmp_path / f"data-{attempt}"
        process = start(root)
        said = stopped(process, root, phase, signal.SIGINT)
        if "Interrupted." in said:
            break  # else all was cut before the signal came
    served.go.set()
    assert process.returncode == 130, said
    assert "Interrupted. What is there is kept: the same command continues." in said
    assert "Traceback" not in said
    end_of(start(root), 0)


def test_killed_worker(tiny: Any, tmp_path: Path, fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed, as for want of memory, ends the cutting with an error, and no process is left."""
    monkeypatch.setattr(linux, "die_with_parent", os._exit)
    with pytest.raises(EnvironmentFault, match=r"a process that cut photographs was killed; .*same command continues"):
        fetch(archive=tiny.write(tmp_path / "a.zip"))
    assert workers() == []
