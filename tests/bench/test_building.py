"""A site is built as people build it, all of its memory is seen, and nothing outlives an interrupt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness.bench import building
from harness.errors import FeedrateError

MEGABYTES = 200


def test_an_interrupt_ends_the_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who presses Ctrl-C leaves no build behind that still writes into a folder that is being removed."""
    started: list[int] = []

    def interrupted(running: subprocess.Popen[bytes]) -> int:
        started.append(running.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "peak_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        building.build("nothing", tmp_path / "results", tmp_path / "build")
    assert not psutil.pid_exists(started[0])
    assert not (tmp_path / "build").exists()


@pytest.mark.slow
def test_memory_is_that_of_all_processes() -> None:
    """What a child of a child holds is counted, with what its parents hold."""
    holds = f"held = b'1' * {MEGABYTES}_000_000; "
    inner = f"{holds}import time; time.sleep(1)"
    outer = f"{holds}import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer]) as running:
        peak = building.peak_bytes(running)
    assert 2 * MEGABYTES < peak / 1e6 < 2 * MEGABYTES + 150


@pytest.mark.slow
def test_a_build_is_watched_to_its_end(tmp_path: Path) -> None:
    """The site is built by the command that people type, and its memory is seen; a build that fails says why."""
    built = building.build("no results", tmp_path / "results", tmp_path / "build")
    assert (built.folder / "index.html").is_file()
    assert built.took_s > 1
    assert 5e7 < built.peak_bytes < 4e9
    precious = tmp_path / "mine" / "site" / "precious.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    with pytest.raises(FeedrateError, match=r"a foreign folder was not built.*did not make"):
        building.build("a foreign folder", tmp_path / "results", tmp_path / "mine")
