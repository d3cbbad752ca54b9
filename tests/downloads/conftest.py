"""A real HTTP server with the faults of real ones, and archives that look like DIV2K's."""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PILImage
from rich.console import Console
from urllib3.util import Retry

from feedrate.downloads.div2k import Part
from feedrate.downloads.transfer import Remote


@dataclass
class Served:
    """One file, and how the server (mis)behaves when it is asked for it."""

    content: bytes
    etag: str | None = '"1"'
    modified: str | None = None
    ranges: bool = True
    if_range: bool = True
    """Whether the condition is looked at."""
    breaks: list[int] = field(default_factory=list)
    """Bytes of the next answers after which the connection ends."""
    statuses: list[int] = field(default_factory=list)
    """Of the next answers."""
    retry_after: str | None = None
    length: Callable[[int], int | None] = lambda size: size
    """Content-Length for so many bytes; None sends none."""
    stall: int | None = None
    """Bytes of an answer after which nothing more comes until ``go`` is set."""
    go: threading.Event = field(default_factory=threading.Event)
    asked: list[dict[str, str]] = field(default_factory=list)
    """Headers of all requests."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        served = self.server.files.get(self.path)
        if served is None:
            return self.send_error(404)
        served.asked.append(dict(self.headers))
        status = served.statuses.pop(0) if served.statuses else 200
        if status != 200:
            self.send_response(status)
            if served.retry_after:
                self.send_header("Retry-After", served.retry_after)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        return self._content(served)

    def _content(self, served: Served) -> None:
        start, size = 0, len(served.content)
        condition = self.headers.get("If-Range")
        same = not served.if_range or condition in (None, served.etag, served.modified)
        if served.ranges and "Range" in self.headers and same:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if start >= size:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        else:
            self.send_response(200)
        for name, value in (("ETag", served.etag), ("Last-Modified", served.modified)):
            if value:
                self.send_header(name, value)
        length = served.length(size - start)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        return self._body(served, served.content[start:])

    def _body(self, served: Served, body: bytes) -> None:
        self.close_connection = True
        broken = served.breaks.pop(0) if served.breaks else None
        if served.stall is not None and not served.go.is_set():
            self._send(body[: served.stall])
            served.go.wait(30)
            body = body[served.stall :]
        self._send(body[:broken])

    def _send(self, body: bytes) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(body)
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, Served] = {}

    def handle_error(self, *_: object) -> None:
        pass

    def serve(self, name: str, content: bytes, **how: object) -> Served:
        """Serve a file."""
        self.files[f"/{name}"] = Served(content, **how)  # type: ignore[arg-type]
        return self.files[f"/{name}"]

    def url(self, name: str) -> str:
        """The address of a file."""
        return f"http://127.0.0.1:{self.server_port}/{name}"


@pytest.fixture
def server() -> Iterator[_Server]:
    """A server on this machine."""
    with _Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        for served in running.files.values():
            served.go.set()
        running.shutdown()
        thread.join()


class Screen(Console):
    """A console whose text can be looked at; no terminal."""

    def __init__(self) -> None:
        super().__init__(file=io.StringIO(), force_terminal=False, width=200)

    @property
    def text(self) -> str:
        """All that was printed."""
        assert isinstance(self.file, io.StringIO)
        return self.file.getvalue()


@pytest.fixture
def screen() -> Screen:
    """Where progress goes."""
    return Screen()


@pytest.fixture
def hasty() -> Retry:
    """Gives up after four tries and never waits between them."""
    return Retry(3, backoff_factor=0, retry_after_max=0)


def remote(url: str, content: bytes, algorithm: str = "sha256") -> Remote:
    """What a file must be."""
    return Remote(url, len(content), algorithm, hashlib.new(algorithm, content).hexdigest())


@pytest.fixture
def expect() -> Callable[..., Remote]:
    """Make a ``Remote``: url, content, algorithm."""
    return remote


@dataclass
class Tiny:
    """An archive like DIV2K's, of three small photographs."""

    part: Part
    archive: bytes
    photographs: dict[str, bytes]
    """File name to PNG."""

    def write(self, path: Path) -> Path:
        """Put the archive somewhere."""
        path.write_bytes(self.archive)
        return path

    def unpack(self, folder: Path) -> Path:
        """Put the photographs somewhere."""
        folder.mkdir(parents=True)
        for name, data in self.photographs.items():
            (folder / name).write_bytes(data)
        return folder


def photograph(seed: int) -> bytes:
    """Blocks of noise as PNG, 560 × 700 pixels: quick to compress, and no two sub-images are equal."""
    coarse = np.random.default_rng(seed).integers(0, 256, (28, 35, 3), np.uint8)
    file = io.BytesIO()
    PILImage.fromarray(coarse.repeat(20, axis=0).repeat(20, axis=1)).save(file, format="PNG", compress_level=1)
    return file.getvalue()


@pytest.fixture
def tiny(server: _Server) -> Tiny:
    """An archive that the server has, as long as nothing else is said."""
    images = {f"{number:04d}.png": photograph(number) for number in (1, 2, 3)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in images.items():
            archive.writestr(f"DIV2K_train_HR/{name}", data)
    content = file.getvalue()
    server.serve("DIV2K_train_HR.zip", content)
    return Tiny(Part(remote(server.url("DIV2K_train_HR.zip"), content), "DIV2K_train_HR", 1, 3), content, images)


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def files() -> Callable[[Path], dict[str, bytes]]:
    """Read all files of a folder."""
    return snapshot
