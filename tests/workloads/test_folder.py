"""Pairs from the photographs of a folder, under the name folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PILImage

from feedrate.schema.errors import InputError
from feedrate.schema.plugins import load
from feedrate.workloads import DataSpec


def test_cuts_pairs(tmp_path: Path) -> None:
    """Photographs become (input, target) pairs, as many as asked for."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
    for name in ("0001.png", "0002.png"):
        PILImage.fromarray(pixels).save(tmp_path / name)
    workload = load("feedrate.workloads", "folder")
    got = list(workload.samples(DataSpec("folder", 7, 16, 2, tmp_path)).samples)
    assert [field.shape for sample in got for field in sample] == [(16, 16, 3)] * 14
    assert len(workload.transform(got[0])) == 2


def test_without_photographs(tmp_path: Path) -> None:
    """Without a folder, or with an empty one, the message says what to do."""
    workload = load("feedrate.workloads", "folder")
    with pytest.raises(InputError, match="--data DIR"):
        workload.samples(DataSpec("folder", 7, 16, 2))
    with pytest.raises(InputError, match="no image here"):
        workload.samples(DataSpec("folder", 7, 16, 2, tmp_path))
