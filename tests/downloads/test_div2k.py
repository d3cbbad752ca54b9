"""`make div2k`, from the server to sub-images, whatever happens on the way."""

from __future__ import annotations

import io
import itertools
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image as PILImage

from feedrate.downloads import crops, div2k, transfer
from feedrate.schema.errors import DataError, EnvironmentFault, InputError

Fetch = Callable[..., Path]
PHOTOGRAPHS = [np.random.default_rng(seed).integers(0, 256, (28, 35, 3), np.uint8) for seed in (1, 2, 3)]
"""Blocks of noise, 560 × 700 pixels: quick to compress, and no two sub-images are equal."""
STEMS = ("0001", "0002", "0003")
CUTTING = "DIV2K_train_HR_sub/.*.tmp/*.png"
"""Files that are there while photographs are cut."""
DRIVER = """
import sys; from pathlib import Path; from rich.console import Console; from feedrate.downloads import div2k, transfer
div2k.SPLITS["train"] = (transfer.Archive(sys.argv[2], int(sys.argv[3]), sys.argv[4]), range(1, 4))
try:
    div2k.fetch("train", Path(sys.argv[1]), Console())
except KeyboardInterrupt:
    sys.exit(130)
"""


def unpacked(folder: Path) -> Path:
    """Put the photographs somewhere."""
    folder.mkdir(parents=True)
    for stem, coarse in zip(STEMS, PHOTOGRAPHS, strict=True):
        image = PILImage.fromarray(coarse.repeat(20, axis=0).repeat(20, axis=1))
        image.save(folder / f"{stem}.png", compress_level=1)
    return folder


@pytest.fixture
def served(server: Any, tmp_path: Path) -> Any:
    """How an archive like DIV2K's is served."""
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        for path in sorted(unpacked(tmp_path / "original").iterdir()):
            archive.write(path, f"DIV2K_train_HR/{path.name}")
    return server.serve("DIV2K_train_HR.zip", file.getvalue())


@pytest.fixture
def fetch(served: Any, screen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetch:
    """Call it with that archive: split, copy."""
    monkeypatch.setitem(div2k.SPLITS, "train", (served.archive, range(1, 4)))
    return lambda split="train", copy=None: div2k.fetch(split, tmp_path / "data", screen, copy)


def check(target: Path) -> None:
    """Every sub-image is that square of its photograph, bit for bit, row by row, and nothing else is there."""
    for stem, coarse in zip(STEMS, PHOTOGRAPHS, strict=True):
        pixels = coarse.repeat(20, axis=0).repeat(20, axis=1)
        for number, (top, left) in enumerate(itertools.product((0, 80), (0, 220)), 1):
            square = np.asarray(PILImage.open(target / stem / f"{stem}_s{number:03d}.png"))
            assert np.array_equal(square, pixels[top : top + 480, left : left + 480])
    assert crops.recorded(target) == 12
    assert len(list(target.rglob("*"))) == 1 + 3 + 12


def test_facts() -> None:
    """What is published of DIV2K; a photograph of the usual size gives 8 × 5 sub-images, one too small none."""
    names = {split: (archive.size, len(numbers), numbers[-1]) for split, (archive, numbers) in div2k.SPLITS.items()}
    assert names == {"train": (3_530_603_713, 800, 800), "valid": (448_993_893, 100, 900)}
    corners = crops.corners(1356, 2040)
    assert (len(corners), corners[:2], corners[-1]) == (40, [(0, 0), (0, 240)], (876, 1560))
    assert (crops.corners(720, 480), crops.corners(479, 2040)) == ([(0, 0), (240, 0)], [])


@pytest.mark.slow
@pytest.mark.parametrize(("ranges", "asked"), [(True, [0, 0, 8000, 15_000]), (False, [0, 0, 8000, 7000])])
def test_download_and_cut(fetch: Fetch, served: Any, screen: Any, ranges: bool, asked: list[int]) -> None:
    """Terms first; broken connections cost no byte that had come, unless the server cannot go on in the middle."""
    served.ranges, served.statuses, served.breaks = ranges, [503], [0, 8000, 7000]
    for _ in range(2):
        check(target := fetch())
        (target.parent / "DIV2K_train_HR.zip").unlink(missing_ok=True)
        assert served.asked == asked
    assert screen.file.getvalue().startswith("DIV2K is for academic research only")
    assert {path.name for path in target.parent.iterdir()} == {"DIV2K_train_HR_sub", ".downloads.lock"}


@pytest.mark.slow
def test_gives_up_and_goes_on_later(fetch: Fetch, served: Any) -> None:
    """After so many tries without a byte the error says what is there; the same command asks for the rest."""
    served.breaks = [10_000, *[0] * 20]
    with pytest.raises(EnvironmentFault, match=r"ended too early; 10,000 of .* bytes are here.*same command continues"):
        fetch()
    assert len(served.asked) == transfer.TRIES
    served.breaks.clear()
    check(fetch())
    assert served.asked[-1] == 10_000


@pytest.mark.parametrize(("statuses", "cut", "text"), [([404], 0, "404"), ([200], 9, "offers .* bytes; expected")])
def test_refused_at_once(fetch: Fetch, served: Any, statuses: list[int], cut: int, text: str) -> None:
    """An answer that will not change, or of another length, such as a login page, is an error at once."""
    served.statuses, served.content = statuses, served.content[cut:]
    with pytest.raises(EnvironmentFault, match=text):
        fetch()
    assert len(served.asked) == 1


def test_wrong_checksum(fetch: Fetch, served: Any, tmp_path: Path) -> None:
    """Wrong bytes are named by both checksums and removed, so that the same command starts anew."""
    served.content = served.content[::-1]
    with pytest.raises(DataError, match=rf"expected {served.archive.checksum} but got [0-9a-f]{{64}}.*downloads it"):
        fetch()
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".downloads.lock"]
    served.content = served.content[::-1]
    check(fetch())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a.zip", "above/DIV2K_train_HR"])
def test_own_copy(fetch: Fetch, served: Any, tmp_path: Path, kind: str) -> None:
    """The user's own copy is used where it lies; what is cut stays; a set that lost a file is made anew."""
    (tmp_path / "a.zip").write_bytes(served.content)
    copy = tmp_path / kind if kind == "a.zip" else unpacked(tmp_path / kind)
    copy = copy.parent if "above" in kind else copy
    check(target := fetch(copy=copy))
    kept = (target / "0002").stat()
    (target / "cut.json").unlink()
    (target / "0003").rename(target / ".0003.tmp")
    check(fetch(copy=copy))
    assert (target / "0002").stat().st_mtime_ns == kept.st_mtime_ns
    (target / "0002" / "0002_s002.png").unlink()
    check(fetch(copy=copy))
    assert served.asked == []


def test_wrong_input(fetch: Fetch, served: Any, tmp_path: Path) -> None:
    """A wrong split or copy is refused with what it is and what was expected; a damaged photograph is named."""
    with pytest.raises(InputError, match=r"--split trian: .*expected one of train, valid \(did you mean 'train'\?\)"):
        fetch("trian")
    (tmp_path / "anew").write_bytes(served.content[:-1])
    (tmp_path / "few").mkdir()
    for name, text in {"gone": "no such file", "anew": "has the sha256 [0-9a-f]{64}", "few": "lacks 3 photo"}.items():
        with pytest.raises(InputError, match=f"--archive {tmp_path / name}: {text}.*; expected DIV2K_train_HR.zip as"):
            fetch(copy=tmp_path / name)
    damaged = unpacked(tmp_path / "damaged") / "0003.png"
    damaged.write_bytes(damaged.read_bytes()[:999])
    with pytest.raises(DataError, match=r"damaged: 0003.png: .*truncated.*; expected 480 x 480 at least"):
        fetch(copy=tmp_path / "damaged")
    assert not (tmp_path / "data" / "DIV2K_train_HR_sub" / "cut.json").exists()


@pytest.mark.slow
def test_disk(fetch: Fetch, served: Any, tmp_path: Path, screen: Any) -> None:
    """One process at a time; all must fit before the first byte is asked for; a disk that fills up is told."""
    with transfer.workplace(tmp_path / "data", screen), pytest.raises(InputError, match="another process is fetching"):
        fetch()
    usage = shutil.disk_usage(tmp_path)._replace(free=int(4.9 * served.archive.size))
    text = r"GB are needed, .* GB are free; .*--data-root"
    with patch.object(shutil, "disk_usage", return_value=usage), pytest.raises(EnvironmentFault, match=text):
        fetch()
    assert served.asked == []
    (tmp_path / "a.zip").write_bytes(served.content)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for most, copy in ((20_000, None), (2000, tmp_path / "a.zip")):  # in the download; while cutting
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
        try:
            with pytest.raises(EnvironmentFault, match="File too large; see to that disk, or choose another"):
                fetch(copy=copy)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    check(fetch())
    assert served.asked == [0, 20_000]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted(served: Any, fetch: Fetch, tmp_path: Path, how: signal.Signals) -> None:
    """Stopped amid the cutting, nothing half-written looks whole; the same command goes on."""
    archive, pipe = served.archive, subprocess.PIPE
    words = ["-c", DRIVER, tmp_path / "data", archive.url, str(archive.size), archive.checksum]
    with subprocess.Popen([sys.executable, *words], stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not list((tmp_path / "data").glob(CUTTING)):
            time.sleep(0.0005)
        process.send_signal(how)
        text, _ = process.communicate(timeout=300)
    assert process.returncode == (130 if how is signal.SIGINT else -how), text
    assert how is signal.SIGKILL or "Interrupted. What is there is kept: the same command continues." in text
    assert "Traceback" not in text
    check(fetch())
