"""`feedrate data pets`: the layout that torchvision's loader expects."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from PIL import Image as PILImage
from torchvision.datasets import OxfordIIITPet

from feedrate.downloads import pets
from feedrate.machine import linux


def packed(members: dict[str, bytes]) -> bytes:
    """Make a .tar.gz."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def test_facts() -> None:
    """The archives are those that torchvision downloads, by its own addresses and checksums."""
    known = [(one.url, one.checksum.removeprefix("md5:")) for one in pets.ARCHIVES.values()]
    assert known == list(OxfordIIITPet._RESOURCES)


def test_for_torchvision(server: Any, tmp_path: Path, screen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted amid the unpacking, no folder looks whole; the same command goes on without another download."""
    jpeg = io.BytesIO()
    PILImage.new("RGB", (30, 20)).save(jpeg, format="JPEG")
    contents = {
        "images": {"images/Abyssinian_1.jpg": jpeg.getvalue(), "images/beagle_1.jpg": jpeg.getvalue()},
        "annotations": {"annotations/trainval.txt": b"Abyssinian_1 1 1 1\nbeagle_1 2 2 1\n"},
    }
    served = {name: server.serve(f"{name}.tar.gz", packed(files), "md5") for name, files in contents.items()}
    monkeypatch.setattr(pets, "ARCHIVES", {name: how.archive for name, how in served.items()})
    with patch.object(linux, "sync_tree", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        pets.fetch(tmp_path, screen)
    base = tmp_path / "oxford-iiit-pet"
    assert sorted(path.name for path in base.iterdir()) == [".images.tmp", "images.tar.gz"]
    for _ in range(2):
        assert pets.fetch(tmp_path, screen) == base
    assert [len(how.asked) for how in served.values()] == [1, 1]
    loaded = OxfordIIITPet(tmp_path, split="trainval", download=False)
    assert (loaded.classes, [label for _, label in loaded]) == (["Abyssinian", "Beagle"], [0, 1])
    assert screen.file.getvalue().startswith("The Oxford-IIIT Pet Dataset is offered by its authors under the licence")


@pytest.mark.parametrize("name", ["../outside", "images/../../outside"])
def test_unsafe_archive(server: Any, tmp_path: Path, screen: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Nothing is written outside of the folder, whatever an archive names."""
    served = server.serve("images.tar.gz", packed({"images/a.jpg": b"", name: b"bad"}), "md5")
    monkeypatch.setattr(pets, "ARCHIVES", {"images": served.archive})
    with pytest.raises(tarfile.OutsideDestinationError):
        pets.fetch(tmp_path, screen)
    assert not list(tmp_path.rglob("outside"))
