"""A reader that takes a whole file into memory is seen, wherever it puts it; one that does not is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pytest

from feedrate.trial import page_cache
from feedrate.trial.checks import hdf5_memory
from feedrate.trial.checks.hdf5_memory import measure, write
from feedrate.trial.job import Job

SMALL = 208
"""Samples: 41 MB; up to 32 MB the C library may hand out memory that was resident already."""


def test_hdf5_reads_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sample of a file leaves nearly all of it on disk, and the file is removed afterwards."""
    monkeypatch.setattr(hdf5_memory, "SAMPLES", SMALL)
    found = hdf5_memory.check(Job("trial", cell={"mode": "check"}, data_root=str(tmp_path / "data")))
    assert not found.fact
    assert found.value < 0.25
    assert "from the middle of an HDF5 file of 41 MB" in found.evidence
    assert str(tmp_path) not in found.evidence
    assert list((tmp_path / "data").iterdir()) == []


def test_a_file_held_in_memory_is_seen(tmp_path: Path) -> None:
    """HDF5's own driver that loads a file whole makes the claim true, even where the page cache forgets it again."""

    def core(path: Path) -> h5py.File:
        file = h5py.File(path, driver="core")
        page_cache.settle(tmp_path, "cold")
        return file

    found = measure(tmp_path, write(tmp_path, SMALL, 0), core)
    assert found.fact
    assert 0.9 < found.value < 1.3
    assert "brought 0.0 % of it" in found.evidence


def test_a_file_in_the_page_cache_alone_is_seen(tmp_path: Path) -> None:
    """A reader that goes through the whole file in small pieces fills the page cache: that is memory too."""

    def through(path: Path) -> Any:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 16):
                pass
        return h5py.File(path)

    found = measure(tmp_path, write(tmp_path, SMALL, 0), through)
    assert found.fact
    assert found.value == pytest.approx(1, abs=0.01)
    assert "brought 100.0 % of it into the page cache" in found.evidence
