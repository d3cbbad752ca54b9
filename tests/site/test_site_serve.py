"""Serving the built site on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from feedrate.schema.errors import InputError
from feedrate.site import serve


def got(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        text: str = answer.read().decode()
        return text


def test_a_busy_port_gives_way_to_the_next(tmp_path: Path) -> None:
    """When the port is in use the next free one is taken, on this machine only; serving ends with its block."""
    (tmp_path / "index.html").write_text("hello")
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with serve.served(tmp_path, port) as address:
            assert port < int(address.removeprefix("http://127.0.0.1:").removesuffix("/")) < port + 50
            assert got(f"{address}index.html") == "hello"
        with pytest.raises(urllib.error.URLError):
            got(address)


def test_a_change_builds_again_and_a_failure_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file builds again; a build that fails is one line and ends nothing; a journal's growth is no change."""
    monkeypatch.setattr(serve, "_POLL_S", 0.02)
    looked, stamp = threading.Event(), serve.stamp

    def look(folders: Sequence[Path]) -> object:
        seen = stamp(folders)
        looked.set()
        return seen

    monkeypatch.setattr(serve, "stamp", look)
    stopped, fails = threading.Event(), [True, False]

    def rebuild() -> None:
        if fails.pop(0):
            raise InputError("run.json: broken")
        stopped.set()

    watcher = threading.Thread(target=serve.watch, args=(rebuild, [tmp_path], stopped))
    watcher.start()
    assert looked.wait(60)
    (tmp_path / "journal.jsonl").write_text("{}")
    time.sleep(0.1)
    assert len(fails) == 2
    (tmp_path / "run.json").write_text("{")
    while len(fails) == 2:
        time.sleep(0.01)
    (tmp_path / "run.json").write_text("{}")
    watcher.join()
    assert "run.json: broken" in capsys.readouterr().err


def test_the_watcher_outlives_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that vanish, while it looks at them, and come back build the site again each time."""
    monkeypatch.setattr(serve, "_POLL_S", 0.001)
    results, stopped, built = tmp_path / "results", threading.Event(), list[bool]()

    def build() -> None:
        built.append(any(names for _, _, names in os.walk(results)))

    watcher = threading.Thread(target=serve.watch, args=(build, [results], stopped))

    def fill() -> None:
        for at in range(40):
            (results / f"{at}" / "run").mkdir(parents=True)
            (results / f"{at}" / "run" / "run.json").write_text("{}")

    fill()
    watcher.start()
    for _ in range(20):
        shutil.rmtree(results)
        fill()
    built.clear()
    while watcher.is_alive() and False not in built:
        shutil.rmtree(results)
        time.sleep(0.02)
        fill()
        time.sleep(0.02)
    while watcher.is_alive() and not built[-1]:
        time.sleep(0.001)
    assert watcher.is_alive()
    stopped.set()
    watcher.join()


def test_open_pages_reload_themselves_after_a_build(tmp_path: Path) -> None:
    """Served pages carry a script that asks when they were built; the files themselves stay as they are."""
    page = tmp_path / "index.html"
    page.write_text("<html><body>hello</body></html>")
    (tmp_path / "data.csv").write_text("a</body>")
    with serve.served(tmp_path, reloading=True) as address:
        for path in ("", "index.html?q=1"):
            assert got(address + path) == '<html><body>hello<script src="/feedrate-reload.js"></script></body></html>'
        assert "location.reload()" in got(f"{address}feedrate-reload.js")
        assert got(f"{address}data.csv") == "a</body>"
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD")) as answer:
            assert answer.headers["Last-Modified"]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            got(f"{address}absent.html")
    assert "script" not in page.read_text()
