"""Archives from a server, whole and as published, over however many broken connections and interruptions."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pooch
from rich.console import Console
from rich.progress import wrap_file

from feedrate.schema.errors import DataError, EnvironmentFault, InputError

TRIES, PAUSE_S, SILENCE_S = 6, 1.0, 60.0
"""Tries in a row that bring no byte, the pause that doubles after each, and the longest silence of a server."""
KEPT = "What is there is kept: the same command continues."


class Archive(NamedTuple):
    """A file as published: its size in bytes, its checksum as ``ALGORITHM:HEX``."""

    url: str
    size: int
    checksum: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.url.rpartition("/")[2]


@contextmanager
def workplace(data_root: Path, console: Console) -> Iterator[None]:
    """Hold a data folder; Ctrl-C and an OSError end with what to do next."""
    try:
        data_root.mkdir(parents=True, exist_ok=True)
        with (data_root / ".downloads.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError as error:
        raise InputError(f"{data_root}: another process is fetching data into this folder; wait for it") from error
    except OSError as error:
        where = f"{error.filename or data_root}: {error.strerror or error}"
        raise EnvironmentFault(f"{where}; see to that disk, or choose another with --data-root. {KEPT}") from error
    except KeyboardInterrupt:
        console.out(f"Interrupted. {KEPT}", highlight=False)
        raise


def require(folder: Path, archives: Iterable[Archive], unpacked: float) -> None:
    """Make sure that so many bytes, and all that is still to come of archives, will fit into a folder."""
    paths = [(archive.size, folder / archive.name) for archive in archives]
    needed = unpacked + sum(size - max(_size(path), _size(_fragment(path))) for size, path in paths)
    if (free := shutil.disk_usage(folder).free) < needed:
        sizes = f"{needed / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are free"
        raise EnvironmentFault(f"{folder}: {sizes}; free the rest, or choose another disk with --data-root")


def fetch(archive: Archive, folder: Path, console: Console) -> Path:
    """Bring an archive into a folder, going on after ``NAME.part``; one that is there already is only checked."""
    fragment = _fragment(path := folder / archive.name)
    if path.exists():
        path.replace(fragment)
    failures = 0
    while (before := _size(fragment)) < archive.size:
        try:
            _append(archive, fragment, console)
        except (URLError, HTTPException, ConnectionError, TimeoutError, SSLError) as error:
            failures = 1 if _size(fragment) > before else failures + 1
            if failures == TRIES or (isinstance(error, HTTPError) and error.code in range(400, 425)):
                state = f"{archive.url}: {error}; {_size(fragment):,} of {archive.size:,} bytes are here"
                advice = "HTTPS to that host must be allowed; SSL_CERT_FILE= names the certificate of a proxy"
                raise EnvironmentFault(f"{state}. Look at the network: {advice}. {KEPT}") from error
            console.out(f"{archive.name}: {error}; trying again", highlight=False)
            time.sleep(PAUSE_S * 2**failures)
    console.out(f"{archive.name}: checking", highlight=False)
    algorithm, _, right = archive.checksum.partition(":")
    if (checksum := pooch.file_hash(fragment, algorithm)) != right:
        fragment.unlink()
        wrong = f"expected {archive.checksum} but got {checksum}"
        raise DataError(f"{archive.url}: {wrong}. The same command downloads it anew")
    return fragment.replace(path)


def _append(archive: Archive, fragment: Path, console: Console) -> None:
    """Take what is missing, or all anew from a server that cannot go on in the middle."""
    headers = {"Range": f"bytes={_size(fragment)}-", "User-Agent": "feedrate"}
    with urlopen(Request(archive.url, headers=headers), timeout=SILENCE_S) as response:  # noqa: S310 - our own address
        missing = archive.size - (_size(fragment) if response.status == 206 else 0)
        if response.length not in (None, missing):
            offer = f"the server offers {response.length:,} bytes; expected {missing:,}"
            raise EnvironmentFault(f"{archive.url}: {offer}. See in a browser whether a proxy or a login page answers")
        bar = wrap_file(response, missing, description=archive.name, console=console)
        with fragment.open("ab" if response.status == 206 else "wb") as file, bar as body:
            shutil.copyfileobj(body, file)
    if _size(fragment) < archive.size:
        raise ConnectionError("the connection ended too early")


def _fragment(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
