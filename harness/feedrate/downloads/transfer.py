"""One file from a server, whole and as it should be, over however many broken connections.

A transfer that was interrupted, by the network or with the process, goes on at its last byte (``Range``) if the server
still has the same version of the file (``If-Range``); if it cannot do that, or the file changed, it starts anew. The
waiting between tries is urllib3's, with its growing pauses and ``Retry-After``; a try that brought bytes sets it back.
Size and checksum decide in the end, whatever the server said.

Beside ``FILE`` lie ``FILE.part``, its first bytes, and ``FILE.part.version``, the validator (RFC 9110, 8.8: a strong
ETag, else the time of the last change) that the server gave with them. Both go when the file is whole.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from rich.console import Console
from urllib3.exceptions import HTTPError, MaxRetryError, SSLError
from urllib3.util import Retry, Timeout, make_headers, parse_url

from feedrate import __version__
from feedrate.downloads import disk
from feedrate.downloads.disk import Meter, say
from feedrate.machine import linux
from feedrate.schema.errors import DataError, EnvironmentFault, InputError

RETRY = Retry(9, backoff_factor=0.5, backoff_max=30, retry_after_max=30)
"""How often to try again in a row without a byte, and how long to pause between."""
TIMEOUT = Timeout(connect=15.0, read=60.0)
"""Longest silence of a server, in seconds."""
BLOCK = 1 << 20
_LATER = (408, 425, 429, 500, 502, 503, 504)
"""Answers that may be another one in a while."""
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Remote:
    """A file on a server, and what it must be."""

    url: str
    size: int
    """Bytes."""
    algorithm: str
    """Of the checksum, as ``hashlib`` calls it."""
    digest: str
    """The checksum, in hex."""

    @property
    def name(self) -> str:
        """The file's own name."""
        return urlsplit(self.url).path.rsplit("/", 1)[-1]


class _FailedTry(Exception):
    """A try that may be repeated."""

    def __init__(self, reason: str, response: urllib3.BaseHTTPResponse | None = None) -> None:
        super().__init__(reason)
        self.response = response


def _validator(headers: Mapping[str, str]) -> str | None:
    """What names the version of a file in ``If-Range``: a strong ETag, else Last-Modified, else nothing."""
    etag = headers.get("ETag")
    if etag and not etag.startswith("W/"):  # a weak one may not be used there: RFC 9110, 13.1.5
        return etag
    return headers.get("Last-Modified")


class _Part:
    """The part of a file that is on disk."""

    def __init__(self, destination: Path) -> None:
        """Look at what an earlier process left."""
        self.path, self._version = (destination.with_name(destination.name + end) for end in (".part", ".part.version"))
        try:
            self.validator = self._version.read_text(encoding="utf-8") or None
            self.size = self.path.stat().st_size
        except FileNotFoundError:
            self.discard()

    def begin(self, validator: str | None) -> None:
        """Start from nothing with a version of the file."""
        self.discard()
        self._version.write_text(validator or "", encoding="utf-8")
        self.validator = validator

    def discard(self) -> None:
        """Forget all of it."""
        self.path.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)
        self.size, self.validator = 0, None

    def finish(self, destination: Path) -> None:
        """Give the whole file its name."""
        linux.sync(self.path)
        self.path.replace(destination)
        self._version.unlink(missing_ok=True)
        linux.sync(destination.parent)


def rest(remote: Remote, destination: Path) -> int:
    """How many bytes of a file are still to come."""
    return 0 if destination.exists() else max(0, remote.size - _Part(destination).size)


def download(remote: Remote, destination: Path, console: Console, retry: Retry = RETRY) -> None:
    """Bring a file to its place; a file that is there already is only checked."""
    if destination.exists():
        if problem := mismatch(destination, remote, console):
            raise InputError(f"{destination}: {problem}. Delete it or move it away; the same command then downloads it")
        return
    with disk.writing(destination, f"downloading {remote.name}"):
        part = _Part(destination)
        if part.size > remote.size:
            part.discard()
        _Transfer(remote, part, console, retry).run()
        if problem := mismatch(part.path, remote, console):
            part.discard()
            raise DataError(
                f"{remote.url}: {problem}. It was removed: the same command downloads it anew. If this happens again, "
                "the file on the server is not the published one any more, or something on the way changes it"
            )
        part.finish(destination)


def mismatch(path: Path, remote: Remote, console: Console) -> str | None:
    """Compare a file with what it must be; says what was found and expected, or nothing if they are the same."""
    size = path.stat().st_size
    if size != remote.size:
        return f"has {size:,} bytes; expected {remote.size:,}"
    digest = hashlib.new(remote.algorithm, usedforsecurity=False)
    with path.open("rb") as file, Meter(console, f"checking {path.name}", size) as meter:
        while block := file.read(BLOCK):
            digest.update(block)
            meter.at(file.tell())
    if digest.hexdigest() != remote.digest:
        return f"has the {remote.algorithm} {digest.hexdigest()}; expected {remote.digest}"
    return None


def _pool(url: str) -> urllib3.PoolManager:
    """Connections to a server, through the proxy that the environment names for it (``https_proxy``, ``no_proxy``)."""
    place = urlsplit(url)
    proxy = getproxies().get(place.scheme)
    if not proxy or proxy_bypass(place.netloc):
        return urllib3.PoolManager()
    auth = parse_url(proxy).auth
    return urllib3.ProxyManager(proxy, proxy_headers=make_headers(proxy_basic_auth=auth) if auth else None)


class _Transfer:
    """Tries, one after the other, until all bytes are there."""

    def __init__(self, remote: Remote, part: _Part, console: Console, retry: Retry) -> None:
        self._remote, self._part, self._console = remote, part, console
        self._patience, self._retry, self._most = retry, retry, part.size
        self._meter = Meter(console, remote.name, remote.size, part.size)

    def run(self) -> None:
        """Come back with the last byte."""
        with self._meter, _pool(self._remote.url) as pool:
            if self._part.size:
                self._say(f"going on after {disk.gigabytes(self._part.size)}")
            while self._part.size < self._remote.size:
                try:
                    self._try(pool)
                except (HTTPError, _FailedTry) as error:
                    self._wait(error)

    def _say(self, text: str) -> None:
        say(self._console, f"{self._remote.name}: {text}")

    def _wait(self, error: HTTPError | _FailedTry) -> None:
        """Wait before the next try, or give up."""
        cause = error.reason if isinstance(error, MaxRetryError) and error.reason else error
        if isinstance(cause, SSLError) and isinstance(cause.args[0], ssl.SSLCertVerificationError):
            raise EnvironmentFault(
                f"{self._remote.url}: the server cannot be trusted: {cause.args[0].verify_message}. Nothing was taken "
                "from it; where a proxy of your own stands between, SSL_CERT_FILE= names the certificate to trust"
            ) from error
        if self._part.size > self._most:
            self._most, self._retry = self._part.size, self._patience
        have = disk.gigabytes(self._part.size)
        try:
            self._retry = self._retry.increment("GET", self._remote.url, error=cause)
        except MaxRetryError:
            raise EnvironmentFault(
                f"{self._remote.url}: {cause}; {len(self._retry.history) + 1} tries in a row have failed, {have} of "
                f"{disk.gigabytes(self._remote.size)} are here. Look at the network (HTTPS to that host must be "
                "allowed); the same command continues"
            ) from error
        self._say(f"{cause}; trying again at {have}")
        self._retry.sleep(error.response if isinstance(error, _FailedTry) else None)

    def _try(self, pool: urllib3.PoolManager) -> None:
        """Take what is missing; the connection is not used again: its answer may not have been read to its end."""
        part = self._part
        headers = {"Accept-Encoding": "identity", "User-Agent": f"feedrate/{__version__}"}
        if part.size:
            headers["Range"] = f"bytes={part.size}-"
            if part.validator:
                headers["If-Range"] = part.validator
        response = pool.request(
            "GET",
            self._remote.url,
            headers=headers,
            preload_content=False,
            decode_content=False,
            timeout=TIMEOUT,
            retries=Retry(5, connect=0, read=0, other=0, respect_retry_after_header=False),  # of redirections alone
        )
        try:
            self._accept(response)
            with part.path.open("ab") as file:
                while part.size < self._remote.size:
                    block = response.read1(min(BLOCK, self._remote.size - part.size))
                    if not block:
                        raise _FailedTry("the server stopped before the end")
                    file.write(block)
                    part.size += len(block)
                    self._meter.at(part.size)
        finally:
            response.close()

    def _accept(self, response: urllib3.BaseHTTPResponse) -> None:
        """See whether what will follow are the bytes that are missing, or the whole file once more."""
        part, url, size = self._part, self._remote.url, self._remote.size
        answer = f"the server answers {response.status} {response.reason}"
        if response.status in (206, 416):
            found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            same = _validator(response.headers) in (None, part.validator)
            if not same or not found or int(found[1]) != part.size or found[2] not in ("*", str(size)):
                part.discard()
                raise _FailedTry(f"{answer}, and not with the bytes that were asked for")
        elif response.status == 200:
            length = response.headers.get("Content-Length")
            if length is not None and length != str(size):
                raise EnvironmentFault(
                    f"{url}: the server offers {length} bytes; expected {size:,}. Something else answered in its place "
                    "(a proxy, a login page), or the file was changed. Nothing was taken from it: see what a browser "
                    "shows there, then type the same command again"
                )
            if part.size:
                self._say("the server cannot go on where it was, or has another version")
            part.begin(_validator(response.headers))
        elif response.status in _LATER:
            raise _FailedTry(answer, response)
        else:
            raise EnvironmentFault(
                f"{url}: {answer}; expected the file. See what a browser shows there; the same command continues"
            )
