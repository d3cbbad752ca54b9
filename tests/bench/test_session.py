"""How figures are judged, and how a command is watched: all of its memory is seen, nothing outlives an interrupt."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from beside import tried
from scipy import stats

from feedrate.bench import session

MEGABYTES = 200


@pytest.mark.parametrize(
    ("most", "values", "met", "measured"),
    [
        (2, [1.21, 1.994, 7], True, "1.99 s (1.21–7.00, n = 3 files) here"),
        (2, [1.21, 2.01, 2.02], False, "2.01 s (1.21–2.02, n = 3 files) here"),
        (1000, [1000.2], False, "1000 s (1000–1000, n = 1 file) here"),
    ],
)
def test_figures_are_judged_by_their_median(most: float, values: list[float], met: bool, measured: str) -> None:
    """One slow time of three decides nothing, and is seen in the range."""
    figure = session.judge_median("a file", most, values, "s", "file", " here")
    assert figure == ("a file", f"≤ {most:,} s", measured, met)


def test_the_ratio_needs_its_whole_interval_below_the_limit() -> None:
    """The interval is Student's t on logs over pairs, recomputed here; its upper end decides."""
    pairs = np.exp(np.random.default_rng(0).normal(math.log(1.005), 0.01, 40))
    figure = session.judge_ratio("a step", 1.02, pairs.tolist(), "pairs of 3 steps")
    lo, hi = np.exp(stats.t.interval(0.95, 39, np.log(pairs).mean(), stats.sem(np.log(pairs))))
    assert figure.met
    assert f"({lo:.4f}–{hi:.4f}, n = 40 pairs of 3 steps)" in figure.measured
    noisy = np.exp(np.random.default_rng(0).normal(math.log(1.005), 0.2, 40))
    assert not session.judge_ratio("a step", 1.02, noisy.tolist(), "pairs").met


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
def test_memory_is_that_of_all_processes() -> None:
    """What a child of a child holds is counted, with what its parents hold."""
    holds = f"held = b'1' * {MEGABYTES}_000_000; "
    inner = f"{holds}import time; time.sleep(0.7)"
    outer = f"{holds}import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer]) as running:
        peak = session.peak_bytes(running)
    assert 2 * MEGABYTES < peak / 1e6 < 2 * MEGABYTES + 150
