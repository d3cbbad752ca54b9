"""What came so far of a file, and under which version of it.

Beside ``FILE`` lie ``FILE.part``, its first bytes, and ``FILE.part.json``, which names the address and the validator
(RFC 9110, 8.8: a strong ETag, else the time of the last change) that the server gave with them. Both go when the file
is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from harness import durable
from harness.downloads import disk


def validator_of(headers: Mapping[str, str]) -> str | None:
    """What names the version of a file in ``If-Range``: a strong ETag, else Last-Modified, else nothing."""
    etag = headers.get("ETag")
    if etag and not etag.startswith("W/"):  # a weak one may not be used there: RFC 9110, 13.1.5
        return etag
    return headers.get("Last-Modified")


class PartialFile:
    """The part of a file that is on disk."""

    def __init__(self, destination: Path, url: str) -> None:
        """Look at what an earlier process left; what came from another address is not used.

        Args:
            destination: the whole file's place.
            url: where it comes from.
        """
        self.path = destination.with_name(destination.name + ".part")
        self._note = destination.with_name(destination.name + ".part.json")
        self._url = url
        self.validator: str | None = None
        """The server's name for the version of which this is a part."""
        try:
            said = json.loads(self._note.read_text(encoding="utf-8"))
            known, self.validator = said["url"] == url, said["validator"]
        except (OSError, ValueError, TypeError, KeyError):
            known = False
        if not known:
            self.discard()
        self.have = self.path.stat().st_size if self.path.exists() else 0
        """Bytes."""

    def begin(self, validator: str | None) -> None:
        """Start from nothing with a version of the file."""
        self.discard()
        disk.write_whole(self._note, json.dumps({"url": self._url, "validator": validator}))
        self.validator = validator

    def discard(self) -> None:
        """Forget all of it."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self.have, self.validator = 0, None

    def finish(self, destination: Path) -> None:
        """Give the whole file its name."""
        durable.sync(self.path)
        self.path.replace(destination)
        self._note.unlink(missing_ok=True)
        durable.sync(destination.parent)
