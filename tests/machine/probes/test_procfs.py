"""What is left in shared memory: whose it is decides whether it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from feedrate.machine.probes import procfs


def test_what_dead_makers_left_goes_and_all_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names hold their maker's process id; a semaphore that was killed in the making has a name of glibc's own."""
    monkeypatch.setattr(procfs, "SHM", str(tmp_path))
    goes = {"torch_17_99_0", "psm_17_1f", "sem.feedrate-17-ptfn1r1_", "sem.uTkmev"}
    stays = {"torch_18_99_0", "sem.feedrate-18-ptfn1r1_", "sem.mp-fzvmsvii", "sem.somebodys-lock"}
    for name in goes | stays:
        (tmp_path / name).touch()
    assert procfs.shm_segments() == goes | stays
    assert procfs.remove_segments(goes | stays, {17}) == len(goes)
    assert procfs.shm_segments() == stays
