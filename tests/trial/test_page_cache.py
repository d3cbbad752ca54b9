"""The page cache follows, and what it holds is counted rather than believed."""

from __future__ import annotations

import mmap
import os
import shutil
from pathlib import Path

import pytest

from feedrate.schema.errors import DataError
from feedrate.trial import page_cache
from feedrate.trial.page_cache import cached, settle

PAGE = mmap.PAGESIZE


def files(root: Path) -> Path:
    """A folder of three files on disk, one below another folder and one of less than a page, and a manifest."""
    for name, size in (("a", 64 * PAGE), ("deep/b", 7 * PAGE + 1), ("c", 100)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.urandom(size))
    (root / "manifest.json").write_text("{}")
    return root


def test_cold_is_cold_and_warm_is_warm(tmp_path: Path) -> None:
    """What was just written is evicted, although it had not reached the disk; what is read comes back, page by page."""
    root = files(tmp_path)
    assert cached(root) == 1
    assert settle(root, "cold") == cached(root) == 0
    with (root / "c").open("rb") as file:
        file.read(1)
    assert cached(root) == pytest.approx(1 / 73)
    assert settle(root, "warm") == cached(root) == 1
    assert settle(root, "cold") == 0


def test_both_ways_of_counting_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels without cachestat count by mincore: the same pages."""
    root = files(tmp_path)
    settle(root, "cold")
    with (root / "a").open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
        file.seek(10 * PAGE)
        file.read(1)
    by_cachestat = cached(root)
    monkeypatch.setattr(page_cache, "_CACHESTAT", 100_000)  # a system call that no kernel has
    assert cached(root) == by_cachestat > 0
    settle(root, "warm")
    assert cached(root) == 1


def test_a_file_that_is_mapped_is_not_called_cold(tmp_path: Path) -> None:
    """Pages that a process has mapped cannot be evicted: that is an error that says so, not a cold trial."""
    root = files(tmp_path)
    with (root / "a").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[::PAGE]) >= 0  # touches every page
        with pytest.raises(DataError, match="another process has mapped"):
            settle(root, "cold")
    assert settle(root, "cold") == 0


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no file system in memory to refuse")
def test_a_file_system_in_memory_cannot_be_cold(tmp_path: Path) -> None:
    """Samples in tmpfs stay where they are, and the error names DATA_ROOT."""
    root = Path("/dev/shm") / f"feedrate-test-{os.getpid()}"
    try:
        files(root)
        with pytest.raises(DataError, match="--data-root"):
            settle(root, "cold")
    finally:
        shutil.rmtree(root)


def test_a_set_larger_than_memory_is_not_called_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where reading everything leaves less than 99 % of it in the cache, nothing is measured as warm."""
    root = files(tmp_path)
    settle(root, "cold")
    monkeypatch.setattr(page_cache, "_read", lambda root: None)
    with pytest.raises(DataError, match="more memory than is free: lower n_samples"):
        settle(root, "warm")


def test_a_full_memory_holds_the_beginning_of_a_set(tmp_path: Path) -> None:
    """What lay in memory is evicted, as another process may have read it; then so many bytes are read, in order."""
    root = files(tmp_path)
    assert 0 < settle(root, "full", 1) < 1
    assert settle(root, "full", 100 * PAGE) == 1
    assert settle(root, "full", 0) == 0
