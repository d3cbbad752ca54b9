"""What must not leave a machine with its records: names, paths, addresses and identifiers in free text."""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import re
import socket
from functools import cache
from pathlib import Path

MOST = 500
"""Longest text that is kept, in characters."""
KIND_MOST = 200
"""Longest name of an error."""
EVIDENCE_MOST = 1_000
"""Longest sentence of a check."""
_TRACEBACK = "Traceback (most recent call last):"
_READ = 20_000
"""How much of a text is looked at, in characters."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
INVISIBLE = r"\x00-\x1f\x7f-\x9f" + "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
"""Control and invisible characters, line breaks, turns of writing direction: a class without its brackets."""
_UNPRINTABLE = re.compile(rf"[{INVISIBLE}\ud800-\udfff\s]+")
"""These, spaces, and surrogates of undecodable file names."""
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_SERIAL = re.compile(
    r"""(?P<word>\b(?:serial(?:[ _-]?(?:number|num|no))?\b|S/N)[ .:=#]*["']?)(?=[A-Za-z_-]*\d)[\w-]{6,}""",
    re.IGNORECASE,
)
"""After its name alone: what looks like one may as well name a processor or a GPU."""
_URL = re.compile(r"""\b(?!file:)[A-Za-z][\w+.-]*://[^\s'"<>]+""")
_UUID = re.compile(r"(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MAC = re.compile(r"(?<![0-9A-Za-z:-])[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}(?![0-9A-Za-z:-])")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?=[0-9a-fA-F.]*:[0-9a-fA-F.]*:)[0-9a-fA-F:.]+(?:%\w+)?(?![\w:])")
_QUOTED_PATH = re.compile(r"""(?P<quote>['"])(?P<path>(?:~|[A-Za-z]:\\|/)[^'"]*)(?P=quote)""")
_PATH = re.compile(r"""(?<![\w.<~-])(?:~[\w.-]*/|[A-Za-z]:\\|/)[^\s'"`<>:;,()\[\]{}|]*""")
_HOME = re.compile(r"/(?:home|Users)/[^/]+/?")
_DISK = re.compile(r"/dev/disk/by-")
"""Names below it are made of serial numbers and UUIDs."""


def _base(path: str) -> str:
    """The last part of a path; a home folder itself is named so."""
    if path.rstrip("/") == "~" or _HOME.fullmatch(path):
        return "<home>"
    if _DISK.match(path):
        return "<disk>"
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1].lstrip("~")


def _address(match: re.Match[str]) -> str:
    text = match.group()
    try:
        ipaddress.ip_address(text.rstrip("."))
    except ValueError:
        return text
    return "<ip>"


@cache
def _own_names() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Patterns of this machine's host and user names. Asks no network."""
    host = socket.gethostname()
    words = {host: "<host>", host.split(".")[0]: "<host>", Path.home().name: "<user>"}
    with contextlib.suppress(KeyError, OSError):  # a user id without a name, as in many containers
        words[getpass.getuser()] = "<user>"
    # An underscore is part of a word to re, but not of a name: /scratch/alice_data must not pass.
    return tuple(
        (re.compile(rf"(?<![A-Za-z0-9<]){re.escape(word)}(?![A-Za-z0-9>])", re.IGNORECASE), mask)
        for word, mask in words.items()
        if len(word) > 1
    )


def _masked(text: str) -> str:
    """Mask what looks like a name, a path or an address, paths before what may be their last part."""
    home = str(Path.home()).rstrip("/")
    text = text.replace(home + "/", "~/") if home else text
    text = _URL.sub("<url>", _EMAIL.sub("<email>", text))
    text = _QUOTED_PATH.sub(lambda match: f"{match['quote']}{_base(match['path'])}{match['quote']}", text)
    text = _PATH.sub(lambda match: _base(match.group()), text)
    text = _MAC.sub("<mac>", _UUID.sub("<uuid>", text))
    text = _SERIAL.sub(r"\g<word><serial>", text)
    text = _IPV6.sub(_address, _IPV4.sub("<ip>", text))
    for pattern, mask in _own_names():
        text = pattern.sub(mask, text)
    return text


def one_line(text: str) -> str:
    """Make any text one line that can be printed: no control characters, no turns of writing direction."""
    return _UNPRINTABLE.sub(" ", _ANSI.sub("", text)).strip()


def names_someone(text: str) -> bool:
    """Say whether a text holds this machine's host or user name, or its home folder."""
    home = str(Path.home()).rstrip("/")
    return bool(home and home in text) or any(pattern.search(text) for pattern, _ in _own_names())


def shorten(text: str) -> str:
    """Leave of a traceback within a text, as PyTorch has it of a worker, the last place and the error."""
    before, marker, traceback = text.partition(_TRACEBACK)
    if not marker:
        return text
    lines = [line.strip() for line in traceback.splitlines() if line.strip()]
    places = [line for line in lines if line.startswith('File "')]
    before = before.removesuffix("Original ").rstrip()
    return " ".join(filter(None, (before, *places[-1:], *lines[-1:])))


def scrub(text: str, most: int = MOST) -> str:
    """Make free text, such as an error's message, fit to be published: one line of ``most`` characters.

    Host name, user name, home folder, folders of paths (the last part stays), addresses (URL, e-mail, IP, MAC), UUIDs
    and what follows the words serial number go. A path with spaces is recognised in quotes only; of a text only the
    first 20,000 characters are looked at.
    """
    line = _masked(one_line(text[:_READ])).strip()
    return line if len(line) <= most else line[: most - 1] + "…"
