"""A real HTTP server with the faults of real ones."""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.console import Console

from feedrate.downloads import transfer
from feedrate.downloads.transfer import Archive


@dataclass
class Served:
    """One file, and how the server (mis)behaves in its next answers."""

    content: bytes
    archive: Archive
    """As published."""
    ranges: bool = True
    breaks: list[int] = field(default_factory=list)
    """Bytes after which the connection ends."""
    statuses: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    """First bytes of all requests."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        served = self.server.files[self.path]
        start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        served.asked.append(start)
        end = served.breaks.pop(0) if served.breaks else None  # before the answer: the next request may overtake
        self.send_response(served.statuses.pop(0) if served.statuses else 206 if served.ranges else 200)
        body = served.content[start if served.ranges else 0 :]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[:end])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, Served] = {}

    def serve(self, name: str, content: bytes, algorithm: str = "sha256") -> Served:
        """Serve a file."""
        url, checksum = f"http://127.0.0.1:{self.server_port}/{name}", hashlib.new(algorithm, content).hexdigest()
        self.files[f"/{name}"] = Served(content, Archive(url, len(content), f"{algorithm}:{checksum}"))
        return self.files[f"/{name}"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    """A server on this machine, which is asked again without a pause."""
    monkeypatch.setattr(transfer, "PAUSE_S", 0)
    with _Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def screen() -> Console:
    """Where progress goes; no terminal."""
    return Console(file=io.StringIO(), force_terminal=False, width=200)
