"""Show the built site on this machine only, and build it again when something that it is made from changes."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.errors import EnvironmentFault, FeedrateError

FIRST_PORT = 8000
_PORTS = 50
_POLL_S = 1.0
Stamp = dict[Path, tuple[int, int]]


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Say nothing: requests are no news to a reader."""

    def end_headers(self) -> None:
        """Forbid caching, so that a rebuilt page is seen at once."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()


def bind(folder: Path, first: int = FIRST_PORT) -> ThreadingHTTPServer:
    """Open a server for a folder on localhost, on the first free port.

    Raises:
        EnvironmentFault: no port is free.
    """
    for port in range(first, first + _PORTS):
        try:
            return ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, directory=str(folder)))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise EnvironmentFault(f"localhost:{port}: cannot be opened: {error.strerror}") from error
    raise EnvironmentFault(f"localhost: ports {first} to {first + _PORTS - 1} are all in use; free one of them")


def stamp(folders: Sequence[Path]) -> Stamp:
    """Note the time and size of every file below some folders, unfinished ones left out."""
    found: Stamp = {}
    for folder in folders:
        for path in folder.rglob("*"):
            try:
                status = path.stat()
            except OSError:
                continue
            if path.is_file() and path.suffix not in (".tmp", ".jsonl"):
                found[path] = (status.st_mtime_ns, status.st_size)
    return found


def watch(rebuild: Callable[[], object], folders: Sequence[Path], stopped: threading.Event) -> None:
    """Rebuild after every change until ``stopped`` is set; a build that fails is said and the old site stays."""
    before = stamp(folders)
    while not stopped.wait(_POLL_S):
        now = stamp(folders)
        if now != before:
            before = now
            _build(rebuild)


def _say(text: str, stderr: bool = False) -> None:
    Console(stderr=stderr, soft_wrap=True).print(text, markup=False, highlight=False)


def _build(rebuild: Callable[[], object]) -> None:
    try:
        rebuild()
        _say("Built again: reload the page.")
    except FeedrateError as error:
        _say(f"feedrate: {error}", stderr=True)


def serve(rebuild: Callable[[], object], folder: Path, watched: Sequence[Path], first: int = FIRST_PORT) -> None:
    """Build, serve and rebuild until Ctrl-C.

    Args:
        rebuild: builds the site below ``folder``.
        folder: what is served.
        watched: folders whose changes call for a new build.
        first: the port that is tried first.
    """
    rebuild()
    stopped = threading.Event()
    with bind(folder, first) as server:
        port = server.server_address[1]
        busy = f" (port {first} is in use)" if port != first else ""
        _say(f"The site is at http://localhost:{port}/{busy}. Ctrl-C ends this.")
        watcher = threading.Thread(target=watch, args=(rebuild, watched, stopped), daemon=True)
        watcher.start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            _say("")
        finally:
            stopped.set()
