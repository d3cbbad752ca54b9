"""An S3 server (moto) in a thread, which counts requests and makes faults."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Fault = Literal["error", "stall", "cut"]
"""500 for an answer; no answer for ``STALL_S``; an upload of which the server gets one half."""
STALL_S = 4.0
_S3: Any = DomainDispatcherApplication(create_backend_app)


@dataclass(slots=True)
class Store:
    """What the server saw, and what it does to requests."""

    url: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    """Method to the number of requests."""
    sent: int = 0
    """Bytes of answers."""
    fault: Fault | None = None
    on: str = ""
    """A part of the paths that the fault hits."""
    method: str = "PUT"
    hit: threading.Event = field(default_factory=threading.Event)

    def reset(self) -> None:
        """Forget what was seen, and make no more faults."""
        self.requests.clear()
        self.sent, self.fault, self.on, self.method = 0, None, "", "PUT"
        self.hit.clear()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""
        self.requests[environ["REQUEST_METHOD"]] += 1
        if self.fault and environ["REQUEST_METHOD"] == self.method and self.on in environ["PATH_INFO"]:
            self.hit.set()
            return self._fail(self.fault, environ, start_response)
        data = b"".join(_S3(environ, start_response))
        self.sent += len(data)
        return [data]

    def _fail(self, fault: Fault, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"].read(size // 2 if fault == "cut" else size)
        if fault == "error":
            start_response("500 Internal Server Error", [("Content-Type", "application/xml")])
            return [b"<Error><Code>InternalError</Code></Error>"]
        if fault == "stall":
            time.sleep(STALL_S)
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError


class _Quiet(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def started() -> Iterator[Store]:
    """Run the server."""
    store = Store()
    server = make_server("127.0.0.1", 0, store, threaded=True, request_handler=_Quiet)  # type: ignore[arg-type]
    store.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield store
    server.shutdown()
    thread.join()
    server.server_close()
