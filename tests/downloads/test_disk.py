"""Room, one process at a time, and files that are whole or absent."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from feedrate.downloads import disk
from feedrate.schema.errors import EnvironmentFault, InputError


class Usage(NamedTuple):
    """What ``shutil.disk_usage`` gives."""

    total: int
    used: int
    free: int


def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little room is said with what is needed, for what, what is free, where, and what to do; enough is silent."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 4_200_000_000))
    parts = {"the rest of the archive": 3_530_603_713, "the sub-images": 13_063_000_000, "nothing": 0}
    with pytest.raises(EnvironmentFault) as caught:
        disk.require(tmp_path, parts)
    assert str(caught.value) == (
        f"{tmp_path}: 16.59 GB are needed (3.53 GB for the rest of the archive and 13.06 GB for the sub-images), "
        "4.20 GB are free on its disk; free 12.39 GB there, or choose a folder on another disk with DATA_ROOT="
    )
    disk.require(tmp_path, {"a": 4_000_000_000, "b": 200_000_000})


def test_sizes() -> None:
    """Sizes are written in decimal units."""
    assert [disk.gigabytes(size) for size in (12, 12_345, 448_993_893, 3_530_603_713)] == [
        "12 bytes",
        "12 kB",
        "449 MB",
        "3.53 GB",
    ]


def test_one_at_a_time(tmp_path: Path, screen: Any) -> None:
    """Two processes cannot fetch into one folder; when the first is done the next one can."""
    with (
        disk.workplace(tmp_path / "data", screen),
        pytest.raises(InputError, match="another process is fetching"),
        disk.workplace(tmp_path / "data", screen),
    ):
        pass
    with disk.workplace(tmp_path / "data", screen):
        pass


def test_interrupted(tmp_path: Path, screen: Any) -> None:
    """Ctrl-C passes, after it was said that the same command continues."""
    with pytest.raises(KeyboardInterrupt), disk.workplace(tmp_path, screen):
        raise KeyboardInterrupt
    assert "the same command continues" in screen.text


@pytest.mark.parametrize("name", ["file/data", "/proc/feedrate"])
def test_no_folder(tmp_path: Path, screen: Any, name: str) -> None:
    """A data folder that cannot be made is named, with what to do."""
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EnvironmentFault, match=r"while making the data folder; .*DATA_ROOT="),
        disk.workplace(tmp_path / name, screen),
    ):
        pass


def test_whole_or_absent(tmp_path: Path) -> None:
    """A small file is replaced at once; a failure leaves the old one and nothing else."""
    path = tmp_path / "note"
    disk.write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        disk.write_whole(path, "\ud800")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["note"]


def test_stale(tmp_path: Path) -> None:
    """What an interrupted process left is removed, and nothing else."""
    (tmp_path / ".a.1.tmp").mkdir()
    (tmp_path / ".a.1.tmp" / "x").write_text("")
    (tmp_path / ".b.2.tmp").write_text("")
    (tmp_path / "kept.tmp").write_text("")
    disk.remove_stale(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["kept.tmp"]
