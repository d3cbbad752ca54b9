"""The disk's read-ahead is set for a while and never longer: whatever ends the while, the disk's own value is back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from feedrate.machine import identity, read_ahead
from feedrate.schema.errors import EnvironmentFault

KILLED = """
import os, signal, sys
from pathlib import Path
from feedrate.machine import identity, read_ahead
disk, kept = map(Path, sys.argv[1:])
identity.disk, read_ahead._KEPT = lambda folder: disk, kept
with read_ahead.limit(disk, 128):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a disk that reads ahead 8 MiB."""
    file = tmp_path / "vda" / "queue" / "read_ahead_kb"
    file.parent.mkdir(parents=True)
    file.write_text("8192\n")
    monkeypatch.setattr(identity, "disk", lambda folder: tmp_path / "vda")
    monkeypatch.setattr(read_ahead, "_KEPT", tmp_path)
    return file


def kept(setting: Path) -> Path:
    return setting.parents[2] / "feedrate-read-ahead-vda"


@pytest.mark.parametrize("ends", [None, KeyboardInterrupt, ValueError])
def test_the_disks_own_value_comes_back(setting: Path, ends: type[BaseException] | None) -> None:
    """After a trial, after Ctrl-C and after any error; nothing of it stays behind."""
    try:
        with read_ahead.limit(setting, 128):
            assert setting.read_text() == "128"
            assert kept(setting).read_text() == f"8192 {os.getpid()}"
            if ends:
                raise ends
    except (KeyboardInterrupt, ValueError):
        assert ends
    assert setting.read_text() == "8192"
    assert not kept(setting).exists()


def test_two_do_not_set_it_at_once(setting: Path) -> None:
    """A second value would be taken for the disk's own: it is refused, and the first goes on and is set back."""
    with read_ahead.limit(setting, 128):
        for kib in (64, 128):
            with pytest.raises(EnvironmentFault, match="by another sweep"), read_ahead.limit(setting, kib):
                pass
        read_ahead.restore(setting)
        assert setting.read_text() == "128"
    assert setting.read_text() == "8192"


def test_what_a_killed_sweep_left_is_set_back(setting: Path) -> None:
    """SIGKILL leaves the value of a trial; the next plan sets the disk's own one back."""
    command = [sys.executable, "-c", KILLED, str(setting.parents[1]), str(setting.parents[2])]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert setting.read_text() == "128"
    read_ahead.restore(setting)
    assert setting.read_text() == "8192"
    assert not kept(setting).exists()
    read_ahead.restore(setting)


def test_where_it_cannot_be_set_it_says_why(setting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No disk, or a file that cannot be written: a reason, and an error for who asks all the same."""
    assert read_ahead.problem(setting) is None
    setting.unlink()
    setting.mkdir()  # root may write any file, but no folder
    assert "cannot be set (Is a directory; run as root)" in (read_ahead.problem(setting) or "")
    monkeypatch.undo()
    monkeypatch.setattr(identity, "_block_device", lambda *_: None)
    assert "lies on no disk" in (read_ahead.problem(setting.parent) or "")
    with pytest.raises(EnvironmentFault, match="lies on no disk"), read_ahead.limit(setting.parent, 128):
        pass


@pytest.mark.skipif((missing := read_ahead.problem(Path.cwd())) is not None, reason=str(missing))
def test_a_real_disk_takes_and_gives_back_a_value(tmp_path: Path) -> None:
    """The kernel accepts the value, and what is described of the machine afterwards is the disk's own."""
    own = identity.storage(tmp_path).read_ahead_bytes
    with read_ahead.limit(tmp_path, 64):
        assert identity.storage(tmp_path).read_ahead_bytes == 64 << 10
    assert identity.storage(tmp_path).read_ahead_bytes == own
