"""`make pets`: the layout that torchvision's loader expects, or an error that says what is there."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PILImage
from torchvision.datasets import OxfordIIITPet
from urllib3.util import Retry

from feedrate.downloads import disk, pets
from feedrate.downloads.transfer import Remote
from feedrate.machine import linux
from feedrate.schema.errors import DataError, EnvironmentFault, FeedrateError

Fetch = Callable[[], Path]


def packed(members: dict[str, bytes]) -> bytes:
    """Make a .tar.gz."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def jpeg(level: int) -> bytes:
    """Encode a small grey image."""
    file = io.BytesIO()
    PILImage.fromarray(np.full((20, 30, 3), level, np.uint8)).save(file, format="JPEG")
    return file.getvalue()


@pytest.fixture
def contents() -> dict[str, bytes]:
    """The two archives, of four photographs."""
    names = ["Abyssinian_1", "Abyssinian_2", "beagle_1", "beagle_2"]
    lines = [f"{name} {place // 2 + 1} {place // 2 + 1} 1\n" for place, name in enumerate(names)]
    return {
        "images": packed({f"images/{name}.jpg": jpeg(40 * place) for place, name in enumerate(names)}),
        "annotations": packed(
            {
                "annotations/README": b"read me",
                "annotations/trainval.txt": "".join(lines[::2]).encode(),
                "annotations/test.txt": "".join(lines[1::2]).encode(),
                "annotations/trimaps/beagle_1.png": b"",
            }
        ),
    }


@pytest.fixture
def remotes(server: Any, contents: dict[str, bytes], expect: Callable[..., Remote]) -> dict[str, Remote]:
    """Both archives on the server."""
    for name, content in contents.items():
        server.serve(f"{name}.tar.gz", content)
    return {name: expect(server.url(f"{name}.tar.gz"), content, "md5") for name, content in contents.items()}


@pytest.fixture
def fetch(remotes: dict[str, Remote], tmp_path: Path, screen: Any, hasty: Retry) -> Fetch:
    """Call it with the small archives."""
    return lambda: pets.fetch(tmp_path, screen, remotes, hasty)


def test_facts() -> None:
    """The archives are those that torchvision downloads, by its own addresses and checksums."""
    assert [(each.url, each.digest) for each in pets.ARCHIVES.values()] == list(OxfordIIITPet._RESOURCES)
    assert {each.algorithm for each in pets.ARCHIVES.values()} == {"md5"}


def test_for_torchvision(fetch: Fetch, server: Any, tmp_path: Path, screen: Any) -> None:
    """Terms first; then torchvision's loader finds its data; the second time nothing is asked for."""
    server.files["/images.tar.gz"].breaks = [300, 200]
    assert fetch() == tmp_path / "oxford-iiit-pet"
    found = OxfordIIITPet(tmp_path, split="trainval", download=False)
    assert found.classes == ["Abyssinian", "Beagle"]
    assert [label for _, label in found] == [0, 1]
    assert (tmp_path / "oxford-iiit-pet" / "annotations" / "trimaps" / "beagle_1.png").exists()
    assert screen.text.startswith(
        "The Oxford-IIIT Pet Dataset is offered by its authors under the licence CC BY-SA 4.0"
    )
    assert "The archives beside them" in screen.text
    for name in ("images.tar.gz", "annotations.tar.gz"):
        (tmp_path / "oxford-iiit-pet" / name).unlink()
        server.files[f"/{name}"].asked.clear()
    fetch()
    assert "the photographs are there already" in screen.text
    assert not server.files["/images.tar.gz"].asked


def test_interrupted_unpacking(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, screen: Any, server: Any
) -> None:
    """Interrupted amid the unpacking, no folder looks whole; the same command goes on without another download."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(linux, "sync_tree", stop)
    with pytest.raises(KeyboardInterrupt):
        fetch()
    base = tmp_path / "oxford-iiit-pet"
    assert sorted(path.name for path in base.iterdir()) == ["annotations.tar.gz", "images.tar.gz"]
    assert "the same command continues" in screen.text
    monkeypatch.undo()
    (base / ".images.tmp").mkdir()
    fetch()
    assert len(server.files["/images.tar.gz"].asked) == 1
    assert not list(base.glob(".*"))


@pytest.mark.parametrize("name", ["../outside", "/tmp/feedrate_outside", "images/../../outside"])
def test_unsafe_archive(
    fetch: Fetch, remotes: dict[str, Remote], server: Any, expect: Callable[..., Remote], tmp_path: Path, name: str
) -> None:
    """Nothing is written outside of the folder, whatever an archive names."""
    content = packed({"images/a.jpg": b"", name: b"bad"})
    server.files["/images.tar.gz"].content = content
    remotes["images"] = expect(server.url("images.tar.gz"), content, "md5")
    with suppress(FeedrateError):
        fetch()
    assert not list(tmp_path.rglob("outside"))
    assert not Path("/tmp/feedrate_outside").exists()


@pytest.mark.parametrize(
    "content", [b"not packed", packed({"images/a.jpg": b"x" * 9999})[:-30]], ids=["text", "truncated"]
)
def test_damaged_archive(
    fetch: Fetch, remotes: dict[str, Remote], server: Any, expect: Callable[..., Remote], tmp_path: Path, content: bytes
) -> None:
    """What is no archive, or half of one, is an error that names it, and leaves no folder."""
    server.files["/images.tar.gz"].content = content
    remotes["images"] = expect(server.url("images.tar.gz"), content, "md5")
    with pytest.raises(DataError, match=r"images.tar.gz: cannot be unpacked \(.*delete it and run again"):
        fetch()
    assert not (tmp_path / "oxford-iiit-pet" / "images").exists()


def test_no_room(fetch: Fetch, tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives and what is in them must fit before the first byte is asked for."""
    usage = disk.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(EnvironmentFault, match=r"the rest of the archives and .* for what is in them"):
        fetch()
    assert not server.files["/images.tar.gz"].asked
