"""Pairs from the sub-images of DIV2K, under the name div2k."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PILImage

from feedrate.downloads import crops
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import load
from feedrate.workloads import DataSpec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sub-images of five photographs, four of each; their level is their place."""
    for place in range(20):
        path = tmp_path / f"{place // 4 + 1:04d}" / f"{place // 4 + 1:04d}_s{place % 4 + 1:03d}.png"
        path.parent.mkdir(exist_ok=True)
        PILImage.fromarray(np.full((40, 40, 3), place, np.uint8)).save(path)
    crops.record(tmp_path, 5, None)
    return tmp_path


def drawn(folder: Path, count: int) -> list[int]:
    """From which sub-images so many samples come."""
    source = load("feedrate.workloads", "div2k").samples(DataSpec("div2k", count, 16, 2, folder))
    return [int(target[0, 0, 0]) for _, target in source.samples]


def test_spread_over_all_photographs(folder: Path) -> None:
    """Fewer samples than sub-images still show all photographs; more show all sub-images."""
    assert drawn(folder, 5) == [0, 4, 8, 12, 16]
    assert drawn(folder, 7) == [0, 2, 5, 8, 11, 14, 17]
    assert drawn(folder, 20) == list(range(20))
    assert sorted(set(drawn(folder, 33))) == list(range(20))


def test_without_a_whole_set(folder: Path) -> None:
    """No folder, one that is being cut, or one that lost a file: the message says what to run."""
    workload = load("feedrate.workloads", "div2k")
    with pytest.raises(InputError, match="no folder of sub-images was given; run: make div2k"):
        workload.samples(DataSpec("div2k", 7, 16, 2))
    (folder / "0001" / "0001_s001.png").unlink()
    with pytest.raises(InputError, match="has 19 sub-images; expected 20; run: make div2k"):
        workload.samples(DataSpec("div2k", 7, 16, 2, folder))
    for content in ("{", "[]", "{}", None):
        (folder / "cut.json").unlink() if content is None else (folder / "cut.json").write_text(content)
        with pytest.raises(InputError, match=r"cut.json: not the record of a whole set .*; run: make div2k"):
            workload.samples(DataSpec("div2k", 7, 16, 2, folder))
