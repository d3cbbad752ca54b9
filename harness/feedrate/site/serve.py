"""Show the built site on this machine only, and build it again when something that it is made from changes.

Pages that are open reload themselves after a build: a script is added to them on their way, which the site itself does
not have.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rich.console import Console

from feedrate.schema.errors import EnvironmentFault, FeedrateError
from feedrate.schema.plugins import RESOURCES

FIRST_PORT = 8000
_PORTS = 50
_POLL_S = 1.0
_LOOKING = 0.1
"""Share of the time that may go into looking for changes: a look at very many files takes long."""
_ENDING_S = 0.05
"""How often a server beside other work looks whether it is to end."""
_SCRIPT = "/feedrate-reload.js"


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder; where pages are to reload themselves it adds the script that does it."""

    def __init__(self, *args: Any, reloading: bool, **rest: Any) -> None:
        self._reloading = reloading
        super().__init__(*args, **rest)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Say nothing: requests are no news to a reader."""

    def end_headers(self) -> None:
        """Forbid caching, so that a rebuilt page is seen at once."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def do_GET(self) -> None:
        """Answer with a file, a page with the script in it, or the script."""
        path = self.path.partition("?")[0]
        file = Path(self.translate_path(self.path)) / ("index.html" if path.endswith("/") else "")
        if self._reloading and path == _SCRIPT:
            self._send((RESOURCES / "site" / "scripts" / "reload.js").read_bytes(), "text/javascript")
        elif self._reloading and file.suffix == ".html" and file.is_file():
            before, end, after = file.read_bytes().rpartition(b"</body>")
            self._send(before + f'<script src="{_SCRIPT}"></script>'.encode() + end + after, "text/html; charset=utf-8")
        else:
            super().do_GET()

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def bind(folder: Path, first: int = FIRST_PORT, *, reloading: bool = False) -> ThreadingHTTPServer:
    """Open a server for a folder on localhost, on the first free port.

    Raises:
        EnvironmentFault: no port is free.
    """
    handler = partial(_Handler, reloading=reloading, directory=str(folder))
    for port in range(first, first + _PORTS):
        try:
            return ThreadingHTTPServer(("127.0.0.1", port), handler)
        except OSError as error:
            last = error
    raise EnvironmentFault(f"localhost: ports {first} to {first + _PORTS - 1} cannot be opened: {last.strerror}")


@contextmanager
def served(folder: Path, first: int = FIRST_PORT, *, reloading: bool = False) -> Iterator[str]:
    """Serve a folder on localhost beside other work, for as long as a ``with`` block lasts.

    Yields:
        Its address, ending in a slash.
    """
    with bind(folder, first, reloading=reloading) as server:
        threading.Thread(target=server.serve_forever, args=(_ENDING_S,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


def stamp(folders: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Note the time and size of some files, and of every file below some folders, unfinished ones left out.

    Folders may vanish meanwhile and come back.
    """
    times: dict[Path, tuple[int, int]] = {}
    for folder in folders:
        below = (Path(within) / name for within, _, names in os.walk(folder) for name in names)
        for path in (folder, *below):
            try:
                status = path.stat()
            except OSError:
                continue
            if path.is_file() and path.suffix not in (".tmp", ".jsonl"):
                times[path] = (status.st_mtime_ns, status.st_size)
    return times


def watch(rebuild: Callable[[], object], folders: Sequence[Path], stopped: threading.Event) -> None:
    """Rebuild after every change until ``stopped`` is set; a build that fails is said and the old site stays."""
    before, took = stamp(folders), 0.0
    while not stopped.wait(max(_POLL_S, took / _LOOKING)):
        begun = time.perf_counter()
        now = stamp(folders)
        took = time.perf_counter() - begun
        if now == before:
            continue
        before = now
        try:
            rebuild()
            _say("Built again.")
        except FeedrateError as error:
            _say(f"feedrate: {error}", stderr=True)
        except Exception as error:  # noqa: BLE001 - the old site stays, whatever a half-written file leads to
            _say(f"feedrate: the site could not be built: {error!r}; the next change builds it again", stderr=True)


def _say(text: str, stderr: bool = False) -> None:
    Console(stderr=stderr, soft_wrap=True).print(text, markup=False, highlight=False)


def serve(
    rebuild: Callable[[], object], folder: Path, watched: Sequence[Path], first: int = FIRST_PORT, note: str = ""
) -> None:
    """Build, serve and rebuild until Ctrl-C; pages that are open reload themselves."""
    rebuild()
    with bind(folder, first, reloading=True) as server:
        port = server.server_address[1]
        busy = f" (port {first} is in use)" if port != first else ""
        _say(f"The site is at http://localhost:{port}/{busy}. Ctrl-C ends this.")
        if note:
            _say(note)
        stopped = threading.Event()
        threading.Thread(target=watch, args=(rebuild, watched, stopped), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            _say("")
        finally:
            stopped.set()
