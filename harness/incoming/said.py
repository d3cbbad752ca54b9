"""What a run says of itself, read from a file of others: a JSON text that may be anything, until it is a manifest."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from pydantic_core import from_json

from harness import migration
from harness.errors import InputError
from harness.incoming import caps, stated
from harness.incoming.declared import within
from harness.incoming.findings import Refused, Rule, shown
from harness.manifest import RunManifest
from harness.redaction import INVISIBLE

MANIFEST = Rule("manifest", "The manifest is one that feedrate wrote: every field there, of its type, none besides.")
VERSION = Rule("version", "Its schema version is this feedrate's or the one before.")
MANIFEST_TEXT = Rule(
    "manifest_text", "Texts of the manifest are short and have no control characters; its numbers are finite."
)
MACHINE_ID = Rule("machine_id", "The machine's id is computed anew from its hardware facts.")
RULES = (MANIFEST, VERSION, MANIFEST_TEXT, MACHINE_ID, *stated.RULES)

_UNPRINTABLE = re.compile(f"[{INVISIBLE}\ud800-\udfff]")
"""Halves of characters too, which JSON can spell and UTF-8 cannot."""
LARGEST = 2.0**63
"""No number of a manifest is as large."""


def read_manifest(text: bytes, where: str) -> tuple[dict[str, Any], RunManifest]:
    """Read a manifest of others.

    Args:
        text: JSON.
        where: names the file in findings.

    Returns:
        The manifest as it stands there, not to be changed, and as this version knows it.

    Raises:
        Refused: it is none, of another version, or holds what no manifest does.
    """
    try:
        return _read(text)
    except Refused as error:
        raise replaced(error, f"{where} {error.finding.where}") from error


@lru_cache(maxsize=4)  # the same text lies in every table of a run
def _read(text: bytes) -> tuple[dict[str, Any], RunManifest]:
    where = "manifest"
    if not text:
        raise Refused(MANIFEST.name, where, "none in its metadata", "one under the key 'feedrate'")
    within(caps.MANIFEST_BYTES, len(text), where)
    try:
        said = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise Refused(MANIFEST.name, where, f"no JSON ({shown(str(error))})", "a manifest as JSON") from error
    _plain(said, 0, where)
    try:
        manifest = migration.manifest(text, where)
    except InputError as error:
        new = isinstance(said, dict) and said.get("schema_version") not in migration.READ
        got = shown(str(error).removeprefix(f"{where}: "), 400)[1:-1]
        expected = "a manifest that this feedrate reads"
        raise Refused((VERSION if new else MANIFEST).name, where, got, expected) from error
    own = said["machine"].get("machine_id")
    if own != manifest.machine.machine_id:
        raise Refused(MACHINE_ID.name, where, shown(own), f"{shown(manifest.machine.machine_id)} by its hardware facts")
    version = said["schema_version"]
    read = manifest.model_dump(mode="json") | {"schema_version": version}
    if other := _unlike(said, read, version > 1, where):
        raise Refused(MANIFEST.name, *other)
    stated.check(said, where)
    return said, manifest


def _unlike(said: Any, read: Any, whole: bool, where: str) -> tuple[str, str, str] | None:
    """Say where a value is not what a manifest's fields make of it: read leniently, or not read at all.

    Args:
        said: as it stands in the file.
        read: as it was read, each value in its field's type.
        whole: whether every field must be there.
        where: the value is, for findings.
    """
    if isinstance(said, dict) and isinstance(read, dict):
        if other := said.keys() ^ read.keys() if whole else said.keys() - read.keys():
            name = min(other)
            got = f"{shown(name)} is there" if name in said else f"no {shown(name)}"
            return where, got, "the fields that a manifest has, each of them and none besides"
        pairs = [(each, read[name], f"{where}.{shown(name)[1:-1]}") for name, each in said.items()]
    elif isinstance(said, list) and isinstance(read, list):
        pairs = [(*pair, where) for pair in zip(said, read, strict=True)]
    else:
        alike = type(said) is type(read) and said == read
        return None if alike else (where, shown(said), f"{shown(read)}, of its type")
    return next(filter(None, (_unlike(a, b, whole, place) for a, b, place in pairs)), None)


def replaced(error: Refused, where: str) -> Refused:
    """Say the same of another place."""
    found = error.finding
    return Refused(found.rule, where, found.got, found.expected)


def _plain(value: Any, depth: int, where: str) -> None:
    """Refuse a JSON value that nests too deeply, and texts and numbers that no manifest holds, names of fields too."""
    within(caps.MANIFEST_DEPTH, depth, where)
    if isinstance(value, str):
        if len(value) > caps.TEXT_CHARACTERS.most or _UNPRINTABLE.search(value):
            raise Refused(MANIFEST_TEXT.name, where, shown(value), "a short line of plain text")
    elif isinstance(value, list):
        for each in value:
            _plain(each, depth + 1, where)
    elif isinstance(value, dict):
        for name, each in value.items():
            _plain(name, depth + 1, where)
            _plain(each, depth + 1, f"{where}.{shown(name)[1:-1]}")
    elif isinstance(value, int | float) and not abs(value) < LARGEST:
        raise Refused(MANIFEST_TEXT.name, where, shown(value), f"a number below {LARGEST:g}")
