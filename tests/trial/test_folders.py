"""Folders are whole or absent, and what could not be finished leaves nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from feedrate.schema.errors import EnvironmentFault
from feedrate.trial import folders

KILLED = """
import os, sys
from pathlib import Path
from feedrate.trial import folders
with folders.build(Path(sys.argv[1]), "") as temp:
    (temp / "half").write_text("")
    os._exit(1)
"""
"""A process that dies while it fills a folder."""

SECOND = """
import sys
from pathlib import Path
from feedrate.trial import folders
with folders.build(Path(sys.argv[1]), ""):
    print(Path(sys.argv[1], "file").exists())
"""


def test_installed_as_a_whole(tmp_path: Path) -> None:
    """Nothing is there before; then all of it, in the place of an older one, and nothing beside it."""
    root = tmp_path / "set" / "png"
    for text in ("old", "new"):
        with folders.build(root, "") as temp:
            (temp / "file").write_text(text)
            assert not root.exists() or (root / "file").read_text() == "old"
            folders.install(temp, root)
        assert (root / "file").read_text() == text
        assert [path.name for path in root.parent.iterdir()] == ["png"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """By the next one that builds the same folder; what belongs to others, living ones or other machines, is kept."""
    for name in ("set", "other"):
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)], check=False, timeout=60)
    killed = {path.name.split(".")[1]: path for path in tmp_path.glob(".*.tmp") if (path / "half").exists()}
    dead = killed["set"].name.split(".")[3]
    mine = killed["set"].with_name(killed["set"].name.replace(dead, str(os.getpid())))
    living = killed["set"].with_name(killed["set"].name.replace(dead, str(os.getppid())))
    elsewhere = tmp_path / f".set.000000.{dead}.tmp"
    for path in (mine, living, elsewhere, killed["set"].with_suffix(".old.tmp")):
        path.mkdir()
    with folders.build(tmp_path / "set", "") as temp:
        assert list(temp.iterdir()) == []
    assert set(tmp_path.iterdir()) == {killed["other"], living, elsewhere}


def test_one_builds_at_a_time(tmp_path: Path) -> None:
    """A second process waits until the first is done, and then sees what that has installed."""
    root = tmp_path / "set"
    with folders.build(root, "") as temp:
        second = subprocess.Popen([sys.executable, "-c", SECOND, str(root)], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            second.communicate(timeout=1.5)
        (temp / "file").write_text("")
        folders.install(temp, root)
    assert second.communicate(timeout=60)[0] == "True\n"


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "free some space there"), (errno.EACCES, "make it writable"), (errno.EROFS, "make it writable")],
)
def test_a_disk_that_refuses_is_told(tmp_path: Path, number: int, advice: str) -> None:
    """Where, why, what was being done, and what to do about it; nothing is left."""
    with (
        pytest.raises(EnvironmentFault, match=f"refused while packing; {advice}, or choose another folder with DATA"),
        folders.build(tmp_path / "set", "while packing"),
    ):
        raise OSError(number, "refused")
    assert list(tmp_path.iterdir()) == []


def test_a_sum_sees_names_and_bytes_and_no_manifest(tmp_path: Path) -> None:
    """A byte that changed and a file under another name give another checksum; the manifest is not counted."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"1234")
    size, checksum = folders.size_and_checksum(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    assert folders.size_and_checksum(tmp_path) == (size, checksum) == (4, checksum)
    (tmp_path / "sub" / "a").write_bytes(b"1235")
    assert folders.size_and_checksum(tmp_path)[1] != checksum
    (tmp_path / "sub" / "a").write_bytes(b"1234")
    (tmp_path / "sub" / "a").rename(tmp_path / "sub" / "b")
    assert folders.size_and_checksum(tmp_path)[1] != checksum
