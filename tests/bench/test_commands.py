"""A command is watched to its end: all of its memory is seen, and nothing outlives an interrupt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from beside import tried

from feedrate.bench import session, site
from feedrate.schema.errors import FeedrateError

MEGABYTES = 200


def test_an_interrupt_ends_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who presses Ctrl-C leaves no build behind that still writes into a folder that is being removed."""
    started: list[int] = []

    def interrupted(running: subprocess.Popen[bytes]) -> int:
        started.append(running.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "peak_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.run_command("site", "--results", str(tmp_path / "none"), "--out", str(tmp_path / "build"), memory=True)
    assert not psutil.pid_exists(started[0])
    assert not (tmp_path / "build").exists()


@pytest.mark.slow
@tried
def test_what_it_says_and_how_it_ends_is_known() -> None:
    """What is printed and what is complained of are told apart, and the status is that of the command."""
    refused = session.run_command("validate", "there-is-nothing-here")
    assert refused.status == 2
    assert "no such file" in refused.stdout
    assert refused.peak_bytes is None
    ended = session.run_command("bench", "--only", "nothing", memory=True)
    assert (ended.status, ended.stdout) == (2, "")
    assert "no section 'nothing'" in ended.stderr
    assert ended.took_s > 0
    assert ended.peak_bytes is not None
    assert 0 < ended.peak_bytes < 1e9


@pytest.mark.slow
@tried
def test_memory_is_that_of_all_processes() -> None:
    """What a child of a child holds is counted, with what its parents hold."""
    holds = f"held = b'1' * {MEGABYTES}_000_000; "
    inner = f"{holds}import time; time.sleep(1)"
    outer = f"{holds}import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer]) as running:
        peak = session.peak_bytes(running)
    assert 2 * MEGABYTES < peak / 1e6 < 2 * MEGABYTES + 150


@pytest.mark.slow
def test_a_build_is_watched_to_its_end(tmp_path: Path) -> None:
    """The site is built by the command that people type, and its memory is seen; a build that fails says why."""
    built = site.build_site(tmp_path / "results", tmp_path / "build")
    assert (tmp_path / "build" / "site" / "index.html").is_file()
    assert built.took_s > 1
    assert 5e7 < (built.peak_bytes or 0) < 4e9
    precious = tmp_path / "mine" / "site" / "precious.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    with pytest.raises(FeedrateError, match=r"the site was not built.*did not make"):
        site.build_site(tmp_path / "results", tmp_path / "mine")
