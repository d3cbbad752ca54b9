"""A real HTTP server with the faults of real ones, and archives that look like DIV2K's."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PILImage
from rich.console import Console

from feedrate.downloads.div2k import Part
from feedrate.downloads.transfer import Patience, Remote
from feedrate.schema.plugins import ROOT

_RESET = struct.pack("ii", 1, 0)


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
    reset: bool = False
    """Whether it is reset then, so that what is on its way may be lost, and not closed."""
    statuses: list[int] = field(default_factory=list)
    """Of the next answers."""
    retry_after: str | None = None
    length: Callable[[int], int | None] = lambda size: size
    """Content-Length for so many bytes; None sends none."""
    extra: bytes = b""
    """Sent after the content."""
    stall: int | None = None
    """Bytes of an answer after which nothing more comes until ``go`` is set."""
    go: threading.Event = field(default_factory=threading.Event)
    asked: list[dict[str, str]] = field(default_factory=list)
    """Headers of all requests."""
    sent: int = 0
    """Bytes of content, in all answers together."""


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
        return self._body(served, served.content[start:] + served.extra)

    def _body(self, served: Served, body: bytes) -> None:
        self.close_connection = True
        broken = served.breaks.pop(0) if served.breaks else None
        if served.stall is not None and not served.go.is_set():
            self._send(served, body[: served.stall])
            served.go.wait(30)
            body = body[served.stall :]
        self._send(served, body[:broken])
        if broken is not None and served.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _send(self, served: Served, body: bytes) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(body)
            self.wfile.flush()
            served.sent += len(body)

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
    """A console whose text can be looked at."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__(file=io.StringIO(), force_terminal=terminal, width=200)

    @property
    def text(self) -> str:
        """All that was printed."""
        assert isinstance(self.file, io.StringIO)
        return self.file.getvalue()


@pytest.fixture
def screen() -> Screen:
    """No terminal."""
    return Screen()


@pytest.fixture
def hasty() -> Patience:
    """Gives up after few tries and never waits between them."""
    return Patience(tries=4, backoff_s=0.0, backoff_max_s=0, connect_s=20.0, read_s=20.0)


def remote(url: str, content: bytes, algorithm: str = "sha256") -> Remote:
    """What a file must be."""
    return Remote(url, len(content), algorithm, hashlib.new(algorithm, content).hexdigest())


@pytest.fixture
def expect() -> Callable[..., Remote]:
    """Make a ``Remote``: url, content, algorithm."""
    return remote


def photograph(seed: int, size: tuple[int, int] = (560, 700)) -> np.ndarray:
    """Blocks of noise: quick to compress, and no two sub-images are equal."""
    rows, columns = size
    coarse = np.random.default_rng(seed).integers(0, 256, (rows // 20, columns // 20, 3), np.uint8)
    return coarse.repeat(20, axis=0).repeat(20, axis=1)


def png(pixels: np.ndarray) -> bytes:
    """Encode an image."""
    file = io.BytesIO()
    PILImage.fromarray(pixels).save(file, format="PNG", compress_level=1)
    return file.getvalue()


@dataclass
class Tiny:
    """An archive like DIV2K's, of a few small photographs."""

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


def tiny(server: _Server, split: str = "train", count: int = 3, damaged: tuple[int, ...] = ()) -> Tiny:
    """Make an archive and what is published about it."""
    first = 1 if split == "train" else 801
    folder = f"DIV2K_{split}_HR"
    images = {f"{number:04d}.png": png(photograph(number)) for number in range(first, first + count)}
    for number in damaged:
        name = f"{first + number:04d}.png"
        images[name] = images[name][: len(images[name]) // 2]
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{folder}/", "")
        for name, data in images.items():
            archive.writestr(f"{folder}/{name}", data)
    content = file.getvalue()
    part = Part(remote(server.url(f"{folder}.zip"), content), folder, first, count)
    return Tiny(part, content, images)


@pytest.fixture
def archives(server: _Server) -> dict[str, Tiny]:
    """Both parts, of three and two photographs; the server does not have them unless a test says so."""
    return {"train": tiny(server), "valid": tiny(server, "valid", 2)}


@pytest.fixture
def damaged(server: _Server) -> Tiny:
    """A part whose second photograph of three is damaged."""
    return tiny(server, damaged=(1,))


_DRIVER = """
import json, resource, sys
from pathlib import Path
from rich.console import Console
from feedrate.downloads import div2k
from feedrate.downloads.transfer import Patience, Remote
from feedrate.schema.errors import FeedrateError
part, root, archive, most = json.loads(sys.argv[1])
if most:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
parts = {"train": div2k.Part(Remote(**part.pop("remote")), **part)}
patience = Patience(tries=3, backoff_s=0.0, backoff_max_s=0, connect_s=2.0, read_s=20.0)
try:
    div2k.fetch("train", Path(root), Console(), archive and Path(archive), parts, patience)
except FeedrateError as error:
    sys.exit(f"{type(error).__name__}: {error}")
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the real thing in a process of its own: part, data root, archive, most bytes of a file."""
    running: list[subprocess.Popen[str]] = []

    def begin(part: Part, root: Path, archive: Path | None = None, most: int = 0) -> subprocess.Popen[str]:
        given = json.dumps([asdict(part), os.fspath(root), archive and os.fspath(archive), most])
        command = [sys.executable, "-c", _DRIVER, given]
        pipe = subprocess.PIPE
        running.append(subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT, text=True))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files of a folder, but for locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }


@pytest.fixture
def files() -> Callable[[Path], dict[str, bytes]]:
    """Read all files of a folder."""
    return snapshot
