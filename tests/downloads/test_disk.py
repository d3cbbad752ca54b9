"""Room, one process at a time, what is said when a folder cannot be made, and how progress is shown."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console
from rich.text import Text

from feedrate.downloads import disk
from feedrate.downloads.disk import Meter
from feedrate.schema.errors import EnvironmentFault, InputError


class Usage(NamedTuple):
    """What ``shutil.disk_usage`` gives."""

    total: int
    used: int
    free: int


def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little room is said with what is needed, for what, what is free, where, and what to do; enough is silent."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 420_000_000))
    parts = {"the rest of the archive": 3_530_603_713, "the sub-images": 13_063_000_000, "nothing": 0}
    with pytest.raises(EnvironmentFault) as caught:
        disk.require(tmp_path, parts)
    assert str(caught.value) == (
        f"{tmp_path}: 16.59 GB are needed (3.53 GB for the rest of the archive and 13.06 GB for the sub-images), "
        "420 MB are free on its disk; free 16.17 GB there, or choose a folder on another disk with DATA_ROOT="
    )
    disk.require(tmp_path, {"a": 400_000_000, "b": 20_000_000})


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


@pytest.mark.parametrize("name", ["file/data", "/proc/feedrate"])
def test_no_folder(tmp_path: Path, screen: Any, name: str) -> None:
    """A data folder that cannot be made is named, with what to do."""
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EnvironmentFault, match=r"while making the data folder; .*DATA_ROOT="),
        disk.workplace(tmp_path / name, screen),
    ):
        pass


@pytest.mark.parametrize(
    ("pieces", "drawn", "plain"),
    [
        (None, "0.6/1.0 kB", "file.zip: 0 of 0 MB"),
        ("photographs", "600/1000 photographs", "file.zip: 1,000 of 1,000 photographs"),
    ],
)
def test_progress(pieces: str | None, drawn: str, plain: str) -> None:
    """A terminal has a bar, in bytes or pieces; a log has a line now and then and at the end, not one a block."""
    shown = {}
    for terminal, steps in ((True, (200, 600)), (False, range(1, 1001))):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
        with Meter(console, "file.zip", 1000, 100, pieces) as running:
            for done in steps:
                running.at(done)
        assert isinstance(console.file, io.StringIO)
        shown[terminal] = console.file.getvalue()
    assert drawn in Text.from_ansi(shown[True]).plain
    assert shown[False].splitlines() == [plain]
