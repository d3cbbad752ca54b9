"""Serving the built site on this machine."""

from __future__ import annotations

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


def test_a_busy_port_gives_way_to_the_next(tmp_path: Path) -> None:
    """When the port is in use the next free one is taken, on this machine only."""
    (tmp_path / "index.html").write_text("hello")
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with serve.served(tmp_path, port) as address:
            assert port < int(address.removeprefix("http://127.0.0.1:").removesuffix("/")) < port + 50
            with urllib.request.urlopen(f"{address}index.html") as answer:
                assert answer.read() == b"hello"


def test_serving_ends_with_its_block(tmp_path: Path) -> None:
    """A folder is served at an address below which its files are found, until the block ends, if by an error."""
    (tmp_path / "index.html").write_text("hello")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    addresses = []

    def fail() -> None:
        with serve.served(tmp_path, port) as address:
            addresses.append(address)
            with urllib.request.urlopen(f"{address}index.html") as answer:
                assert answer.read() == b"hello"
            raise InputError("in the block")

    with pytest.raises(InputError):
        fail()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(addresses[0])


def test_a_change_builds_again_and_a_failure_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file builds again; a build that fails is one line and ends nothing; a journal's growth is no change."""
    monkeypatch.setattr(serve, "_POLL_S", 0.02)
    stopped, built, looked = threading.Event(), threading.Event(), threading.Event()
    stamp = serve.stamp

    def look(folders: Sequence[Path]) -> object:
        seen = stamp(folders)
        looked.set()
        return seen

    monkeypatch.setattr(serve, "stamp", look)
    fails = [True, False]

    def rebuild() -> None:
        if fails.pop(0):
            raise InputError("run.json: broken")
        built.set()

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
    assert built.wait(60)
    stopped.set()
    watcher.join()
    assert "run.json: broken" in capsys.readouterr().err


def test_open_pages_reload_themselves_after_a_build(tmp_path: Path) -> None:
    """Served pages carry a script that asks how often the site was built; the files themselves stay as they are."""
    page = tmp_path / "index.html"
    page.write_text("<html><body>hello</body></html>")
    (tmp_path / "data.csv").write_text("a</body>")
    builds = serve.Builds()
    with serve.served(tmp_path, builds=builds) as address:

        def got(path: str) -> str:
            with urllib.request.urlopen(address + path) as answer:
                text: str = answer.read().decode()
                return text

        for path in ("", "index.html?q=1"):
            assert got(path) == '<html><body>hello<script src="/feedrate-reload.js"></script></body></html>'
        assert "location.reload()" in got("feedrate-reload.js")
        assert got("data.csv") == "a</body>"
        assert got("feedrate-build") == "0"
        builds.count += 1
        assert got("feedrate-build") == "1"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            got("absent.html")
    assert "script" not in page.read_text()
