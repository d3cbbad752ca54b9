"""`make div2k`, from the server to sub-images, whatever happens on the way."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beside import tried

from feedrate.downloads import div2k
from feedrate.downloads.crop_set import CutSet
from feedrate.downloads.transfer import Patience
from feedrate.schema.errors import DataError, EnvironmentFault, FeedrateError, InputError

Start = Callable[..., "subprocess.Popen[str]"]
Files = Callable[[Path], dict[str, bytes]]
PATIENCE_S = 120
"""An fsync waits for all that is on its way to the disk: gigabytes, where something was just installed."""


@pytest.fixture
def fetch(archives: dict[str, Any], screen: Any, hasty: Patience, tmp_path: Path) -> Callable[..., Path]:
    """Call it with the tiny archives: split, archive."""
    parts = {name: made.part for name, made in archives.items()}

    def call(split: str = "train", archive: Path | None = None) -> Path:
        return div2k.fetch(split, tmp_path / "data", screen, archive, parts, hasty)

    return call


def end_of(process: subprocess.Popen[str], status: int) -> str:
    """What a process has said when it ends; never a traceback."""
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, said
    assert "Traceback" not in said
    return said


def children() -> set[str]:
    """Commands of this process's children that cut."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            command = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if "feedrate.downloads.crop_worker" in command:
                found.add(command)
    return found


def test_facts() -> None:
    """What is published of DIV2K: 800 and 100 photographs, numbered on; sha256 and sizes of both archives."""
    train, valid = div2k.PARTS["train"], div2k.PARTS["valid"]
    assert [train.members[0], train.members[-1]] == ["DIV2K_train_HR/0001.png", "DIV2K_train_HR/0800.png"]
    assert [valid.members[0], valid.members[-1]] == ["DIV2K_valid_HR/0801.png", "DIV2K_valid_HR/0900.png"]
    for part in (train, valid):
        assert part.remote.url == f"https://data.vision.ee.ethz.ch/cvl/DIV2K/{part.folder}.zip"
        assert part.remote.algorithm == "sha256"
        assert len(part.remote.digest) == 64
    assert [train.remote.size, valid.remote.size] == [3_530_603_713, 448_993_893]


def test_download_and_cut(server: Any, archives: dict[str, Any], fetch: Callable[..., Path], screen: Any) -> None:
    """Terms first, then the archive, then the sub-images; the second time everything is there already."""
    made = archives["train"]
    served = server.serve("DIV2K_train_HR.zip", made.archive, breaks=[5000, 10_000])
    target = fetch()
    assert target.name == "DIV2K_train_HR_sub"
    assert CutSet.load(target) == CutSet(3, 12, 480, 240, 3, made.part.remote.digest)
    assert json.loads((target / "cut.json").read_text())["count"] == len(list(target.glob("*/*.png"))) == 12
    assert screen.text.startswith("DIV2K is for academic research only")
    assert screen.text.index("academic") < screen.text.index("DIV2K_train_HR.zip: ")
    assert "can be deleted" in screen.text
    archive = target.parent / "DIV2K_train_HR.zip"
    archive.unlink()
    asked = len(served.asked)
    assert fetch() == target
    assert len(served.asked) == asked
    assert "are there already" in screen.text
    assert children() == set()


def test_a_missing_file_is_found(server: Any, archives: dict[str, Any], fetch: Callable[..., Path]) -> None:
    """A set that lost a file since is made whole again."""
    server.serve("DIV2K_train_HR.zip", archives["train"].archive)
    target = fetch()
    lost = target / "0002" / "0002_s002.png"
    content = lost.read_bytes()
    lost.unlink()
    fetch()
    assert lost.read_bytes() == content


def test_no_such_part(fetch: Callable[..., Path], tmp_path: Path) -> None:
    """A part that is none is named with the nearest that is one, and nothing is made."""
    with pytest.raises(InputError, match=r"SPLIT=trian: .*expected one of train, valid \(did you mean 'train'\?\)"):
        fetch("trian")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("kind", ["zip", "folder", pytest.param("folder above", marks=pytest.mark.slow)])
def test_own_archive(
    archives: dict[str, Any], fetch: Callable[..., Path], server: Any, tmp_path: Path, kind: str, screen: Any
) -> None:
    """The user's own copy is used where it lies, as published or unpacked; nothing is downloaded or copied."""
    served = server.serve("DIV2K_train_HR.zip", archives["train"].archive)
    if kind == "zip":
        own = archives["train"].write(tmp_path / "mine.zip")
    else:
        own = archives["train"].unpack(tmp_path / "mine" / "DIV2K_train_HR")
        own = own.parent if kind == "folder above" else own
    target = fetch(archive=own)
    digest = archives["train"].part.remote.digest
    assert CutSet.load(target) == CutSet(3, 12, 480, 240, 3, digest if kind == "zip" else None)
    assert served.asked == []
    assert own.exists()
    assert "can be deleted" not in screen.text
    assert {path.name for path in target.parent.iterdir()} == {"DIV2K_train_HR_sub", ".downloads.lock"}


def test_wrong_archives(archives: dict[str, Any], fetch: Callable[..., Path], tmp_path: Path) -> None:
    """Whatever is no archive of that part is refused with what it is and what was expected."""
    other = archives["valid"].write(tmp_path / "valid.zip")
    cases: dict[str, tuple[Path, str]] = {
        "missing": (tmp_path / "gone.zip", "No such file or directory; expected DIV2K_train_HR.zip as published"),
        "other part": (other, r"lacks 3 of 3 photographs, such as DIV2K_train_HR/0001.png.*say SPLIT=valid"),
    }
    path = tmp_path / "text.zip"
    path.write_text("no archive")
    cases["no zip"] = path, "10 bytes that are no zip archive"
    path = tmp_path / "half.zip"
    path.write_bytes(archives["train"].archive[:-1000])
    cases["truncated"] = path, "only the beginning of one"
    path = tmp_path / "foreign.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("notes.txt", "x")
    cases["foreign"] = path, "lacks 3 of 3 photographs"
    path = tmp_path / "packed_anew.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in archives["train"].photographs.items():
            file.writestr(f"DIV2K_train_HR/{name}", data)
    cases["packed anew"] = path, r"right names, but the archive has [\d,]+ bytes; expected .*name the folder"
    content = bytearray(archives["train"].archive)
    content[500] ^= 1
    path = tmp_path / "flipped.zip"
    path.write_bytes(content)
    cases["flipped"] = path, "right names, but the archive has the sha256 [0-9a-f]{64}; expected [0-9a-f]{64}: it is"
    path = archives["train"].unpack(tmp_path / "few")
    (path / "0002.png").unlink()
    cases["few"] = path, r"a folder that lacks 1 of 3 photographs, such as 0002.png; expected .*0001.png to 0003.png"
    for given, said in cases.values():
        with pytest.raises(InputError, match=said) as caught:
            fetch(archive=given)
        assert f"ARCHIVE={given}" in str(caught.value)
    assert not (tmp_path / "data" / "DIV2K_train_HR_sub").exists()


def test_no_room_is_seen_before_it_starts(
    server: Any, archives: dict[str, Any], fetch: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Archive and sub-images must fit before the first byte is asked for; with ARCHIVE= the sub-images must."""
    served = server.serve("DIV2K_train_HR.zip", archives["train"].archive)
    size = len(archives["train"].archive)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=round(4.6 * size)))
    with pytest.raises(EnvironmentFault, match=r"for the rest of the archive and .* for the sub-images\), .* are free"):
        fetch()
    assert served.asked == []
    assert not list((tmp_path / "data").glob("DIV2K*"))
    own = archives["train"].write(tmp_path / "own.zip")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size))
    with pytest.raises(EnvironmentFault, match=r"are needed \([^ ]+ [kM]B for the sub-images\)"):
        fetch(archive=own)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4 * size))
    fetch(archive=own)


@pytest.mark.parametrize("cutting", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_disk_that_fills_up(server: Any, archives: dict[str, Any], start: Start, tmp_path: Path, cutting: bool) -> None:
    """A disk that takes no more, in the download or while cutting, ends it with one line; later it continues."""
    made, root = archives["train"], tmp_path / "data"
    served = server.serve("DIV2K_train_HR.zip", made.archive)
    own = made.write(tmp_path / "own.zip") if cutting else None
    said = end_of(start(made.part, root, own, most=2000 if cutting else 20_000), 1)
    assert "EnvironmentFault" in said
    assert f"File too large while {'cutting DIV2K_train_HR/000' if cutting else 'downloading'}" in said
    end_of(start(made.part, root, own), 0)
    assert cutting or served.asked[-1]["Range"] == "bytes=20000-"


def test_folder_that_cannot_be_written(archives: dict[str, Any], fetch: Callable[..., Path], tmp_path: Path) -> None:
    """A file where a folder should be is named."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "DIV2K_train_HR_sub").write_text("")
    with pytest.raises(EnvironmentFault, match=r"DIV2K_train_HR_sub: .* while cutting; .*DATA_ROOT="):
        fetch(archive=archives["train"].write(tmp_path / "own.zip"))


@pytest.mark.slow
def test_damaged_photograph(server: Any, damaged: Any, tmp_path: Path, screen: Any, hasty: Patience) -> None:
    """A damaged photograph leaves a set that is not whole, with all others cut; nothing says that it is whole."""
    server.serve("DIV2K_train_HR.zip", damaged.archive)
    for _ in range(2):
        with pytest.raises(DataError, match=r"1 of 3 photographs cannot be used .*0002.png"):
            div2k.fetch("train", tmp_path, screen, None, {"train": damaged.part}, hasty)
    target = tmp_path / "DIV2K_train_HR_sub"
    assert sorted(path.name for path in target.iterdir()) == ["0001", "0003"]


def until(done: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something that a running process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not done() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)


@pytest.fixture
def expected(archives: dict[str, Any], tmp_path: Path, screen: Any, files: Files) -> dict[str, bytes]:
    """The sub-images of an undisturbed run."""
    parts = {"train": archives["train"].part}
    own = archives["train"].write(tmp_path / "undisturbed.zip")
    return files(div2k.fetch("train", tmp_path / "undisturbed", screen, own, parts))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["download", "cutting"])
@tried
def test_killed(
    server: Any,
    archives: dict[str, Any],
    start: Start,
    tmp_path: Path,
    expected: dict[str, bytes],
    files: Files,
    phase: str,
) -> None:
    """SIGKILL amid the download or the cutting: nothing half-written looks whole, and the same command goes on.

    It asks for no byte that had come, and ends with the same files.
    """
    made, root = archives["train"], Path(tempfile.mkdtemp(dir=tmp_path))
    served = server.serve("DIV2K_train_HR.zip", made.archive, stall=30_000)
    own = made.write(tmp_path / "own.zip") if phase == "cutting" else None
    target = root / "DIV2K_train_HR_sub"
    process = start(made.part, root, own)
    if own:
        until(lambda: any(target.glob(".*.tmp/*.png")), process)
    else:
        until(lambda: _size(root / "DIV2K_train_HR.zip.part") >= 30_000, process)
    process.kill()
    process.wait()
    assert not (target / "cut.json").exists()
    served.go.set()
    end_of(start(made.part, root, own), 0)
    assert files(target) == expected
    assert own or int(served.asked[1]["Range"].removeprefix("bytes=").rstrip("-")) >= 30_000


@pytest.mark.slow
@pytest.mark.parametrize("point", range(24))
def test_killed_at_any_byte(
    server: Any,
    archives: dict[str, Any],
    start: Start,
    tmp_path: Path,
    expected: dict[str, bytes],
    files: Files,
    point: int,
) -> None:
    """Wherever it is killed, in the download or later, several times in a row, the end is the same."""
    content = archives["train"].archive
    server.serve("DIV2K_train_HR.zip", content, breaks=[len(content) * point // 24, 1])
    root = tmp_path / "data"
    for attempt in range(3):
        process = start(archives["train"].part, root)
        time.sleep(0.15 + 0.04 * point + 0.1 * attempt)
        process.kill()
        process.wait()
        target = root / "DIV2K_train_HR_sub"
        if target.exists():
            whole = {name: data for name, data in files(target).items() if not name.startswith(".")}
            assert whole.items() <= expected.items()
    end_of(start(archives["train"].part, root), 0)
    assert files(root / "DIV2K_train_HR_sub") == expected
    assert (root / "DIV2K_train_HR.zip").read_bytes() == content


@pytest.mark.parametrize("phase", [pytest.param("download", marks=pytest.mark.slow), "cutting"])
def test_interrupted(server: Any, archives: dict[str, Any], start: Start, tmp_path: Path, phase: str) -> None:
    """Ctrl-C ends it at once with a line that says how to go on; no process and no lock is left."""
    made = archives["train"]
    stall = 30_000 if phase == "download" else None
    served = server.serve("DIV2K_train_HR.zip", made.archive, stall=stall)
    for attempt in range(5):
        root = tmp_path / f"data-{attempt}"
        process = start(made.part, root)
        target = root / "DIV2K_train_HR_sub"
        if phase == "download":
            until(lambda root=root: _size(root / "DIV2K_train_HR.zip.part") >= 30_000, process)
        else:
            until(lambda target=target: any(target.glob(".*.tmp")), process)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
        if "Interrupted." in said:
            break  # else all was cut before the signal came
    served.go.set()
    assert process.returncode == 130, said
    assert "Interrupted. What is there is kept: the same command continues." in said
    assert "Traceback" not in said
    end_of(start(made.part, root), 0)


@pytest.mark.slow
def test_two_at_once(
    server: Any, archives: dict[str, Any], start: Start, fetch: Callable[..., Path], tmp_path: Path
) -> None:
    """A second process is refused while the first one works."""
    served = server.serve("DIV2K_train_HR.zip", archives["train"].archive, stall=0)
    process = start(archives["train"].part, tmp_path / "data")
    until(lambda: bool(served.asked), process)
    with pytest.raises(FeedrateError, match="another process"):
        fetch()
    served.go.set()
    end_of(process, 0)
