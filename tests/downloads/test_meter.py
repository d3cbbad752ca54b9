"""How far it is, how fast it goes, when it is done."""

from __future__ import annotations

import io
import time

import pytest
from beside import tried
from rich.console import Console
from rich.text import Text

from feedrate.downloads import meter
from feedrate.downloads.meter import Meter


def shown(terminal: bool, pieces: str | None, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is printed while half of the work is done in a short while."""
    monkeypatch.setattr(meter, "REDRAW_S", 0.0)
    monkeypatch.setattr(meter, "PLAIN_S", 0.0)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    scale = 1 if pieces else 10**6
    with Meter(console, "file.zip", 1000 * scale, 100 * scale, pieces) as running:
        for done in (200, 400, 600):
            time.sleep(0.02)
            running.at(done * scale)
        running.say("a line [that stays]")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@tried
def test_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes show megabytes, speed and the time that is left, on a terminal and in a log."""
    bar = shown(True, None, monkeypatch)
    assert "file.zip" in bar
    assert "0.6/1.0 GB" in bar
    assert "GB/s" in bar
    assert "0:00:0" in bar
    lines = shown(False, None, monkeypatch).splitlines()
    assert lines[-1] == "a line [that stays]"
    assert lines[-2].startswith("file.zip: 600 of 1,000 MB, ")
    assert "MB/s, " in lines[-2]
    assert lines[-2].endswith(" s left")


def test_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work is counted in its own pieces."""
    drawn = shown(True, "photographs", monkeypatch)
    assert " 100/1000" in drawn
    bar = Text.from_ansi(drawn).plain
    assert "600/1000 photographs" in bar
    assert "file.zip: 600 of 1,000 photographs, " in shown(False, "photographs", monkeypatch)


def test_a_log_is_not_flooded() -> None:
    """Without a terminal a line comes now and then and at the end, not for every block."""
    console = Console(file=io.StringIO(), force_terminal=False)
    with Meter(console, "file.zip", 1000) as running:
        for done in range(1, 1001):
            running.at(done)
    assert isinstance(console.file, io.StringIO)
    assert len(console.file.getvalue().splitlines()) == 1
