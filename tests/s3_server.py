"""An S3 server in a process of its own (moto), behind a proxy that counts requests and makes faults."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Fault = Literal["error", "stall", "cut"]
"""500 for an answer; no answer for ``STALL_S``; an upload of which the server gets one half."""
STALL_S = 3.0
START_S = 60.0


@dataclass(slots=True)
class Store:
    """What the proxy saw, and what it does to requests."""

    url: str
    requests: Counter[str] = field(default_factory=Counter)
    """Method to the number of requests."""
    sent: int = 0
    """Bytes of answers."""
    fault: Fault | None = None
    on: str = ""
    """A part of the paths that the fault hits."""
    method: str = "PUT"
    left: int = 10**9
    """How many requests it hits."""
    hit: threading.Event = field(default_factory=threading.Event)

    def reset(self) -> None:
        """Forget what was seen, and make no more faults."""
        self.requests.clear()
        self.sent, self.fault, self.on, self.method, self.left = 0, None, "", "PUT", 10**9
        self.hit.clear()

    def strikes(self, method: str, path: str) -> Fault | None:
        """The fault of a request, if it gets one."""
        if not self.fault or method != self.method or self.on not in path or self.left <= 0:
            return None
        self.left -= 1
        self.hit.set()
        return self.fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store
    port: int

    def _forward(self) -> None:
        fault = self.store.strikes(self.command, self.path)
        size = int(self.headers.get("Content-Length") or 0)
        self.store.requests[self.command] += 1
        if fault == "cut":
            self.rfile.read(size // 2)
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        body = self.rfile.read(size)
        if fault == "stall":
            time.sleep(STALL_S)
            self.close_connection = True
            return
        if fault == "error":
            self._answer(500, {"Content-Type": "application/xml"}, b"<Error><Code>InternalError</Code></Error>")
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        upstream.request(self.command, self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        data = answer.read()
        self._answer(answer.status, dict(answer.getheaders()), data)
        upstream.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815 - http.server's names

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        kept = {
            name: value for name, value in headers.items() if name.lower() not in ("transfer-encoding", "connection")
        }
        if self.command != "HEAD":
            kept = {name: value for name, value in kept.items() if name.lower() != "content-length"}
            kept["Content-Length"] = str(len(data))
        for name, value in kept.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.store.sent += len(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started() -> Iterator[Store]:
    """Run the server and the proxy."""
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(server, port)
            front = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
            _Handler.port, _Handler.store = port, Store(f"http://127.0.0.1:{front.server_address[1]}")
            front.daemon_threads = True
            threading.Thread(target=front.serve_forever, args=(0.05,), daemon=True).start()
            yield _Handler.store
            front.shutdown()
            front.server_close()
        finally:
            server.kill()


def _wait(server: subprocess.Popen[bytes], port: int) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"moto did not start; status {server.poll()}")
