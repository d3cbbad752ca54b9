"""The manifest of a run, read from a file of others: a JSON text that may be anything, until it is a manifest.

Its fields are checked as they stand in the file: numbers by what they count, texts by what they are for. Fields are
named by their path, with a star for each element of a list and for each name that the run itself chose. What no table
names is a number of zero or more, or any plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic_core import from_json

from feedrate.schema.axes import FREE_NAME
from feedrate.schema.columns import OUTCOMES
from feedrate.schema.errors import InputError
from feedrate.schema.redaction import INVISIBLE
from feedrate.share.validation import caps, findings
from feedrate.share.validation.findings import CELL_ID, NAME, Refused, Rule, quote
from feedrate.store import migration
from feedrate.store.manifest import RunManifest

MANIFEST = Rule("manifest", "The manifest is one that feedrate wrote: every field there, of its type, none besides.")
VERSION = Rule("version", "Its schema version is this feedrate's or an earlier one.")
MANIFEST_TEXT = Rule(
    "manifest_text", "Texts of the manifest are short and have no control characters; its numbers are finite."
)
MACHINE_ID = Rule("machine_id", "The machine's id is computed anew from its hardware facts.")
MANIFEST_RANGE = Rule(
    "manifest_range", "Every number of the manifest lies where it can: none is negative, none beyond reason."
)
MANIFEST_NAME = Rule(
    "manifest_name",
    "Ids, hashes, times, words and the names of fields in the manifest match the pattern that feedrate writes.",
)
COMMAND = Rule(
    "command",
    "The command that repeats the run is make sweep with plain values, as it is shown to be typed, or feedrate run "
    "or feedrate tune with the script's name.",
)
RULES = (MANIFEST, VERSION, MANIFEST_TEXT, MACHINE_ID, MANIFEST_RANGE, MANIFEST_NAME, COMMAND)

EXACT = 2.0**53
"""Whole numbers up to here are exact as float64, and in JavaScript."""
CORES = 4096
"""No machine has more."""
_MANY, _LONG_S = 1e6, 1e6
"""Cells and blocks of a run; seconds, eleven days of them."""
_MOST: dict[str, float] = {
    **dict.fromkeys(("protocol_version", "datasets.*.workload_version"), 1e4),
    **dict.fromkeys(("cells", "ceilings", "blocks", "contrasts.*.blocks", "claims.*.blocks"), _MANY),
    **dict.fromkeys(("protocol.min_steps", "protocol.blocks.*", "protocol.control_every"), _MANY),
    **dict.fromkeys(("protocol.warmup_s", "protocol.window_s", "protocol.timeout_s", "budget_s"), _LONG_S),
    **dict.fromkeys(("cell_seconds.*", "datasets.*.pack_s"), _LONG_S),
    **dict.fromkeys(("cell_spread.*.sd", "cell_spread.*.within"), 1e3),
    "combinations": 1e9,
    "outcomes.*": 1e7,
    **dict.fromkeys(("tuned.*.settings", "tuned.*.trials", "tuned.*.aside.*.count"), 1e7),
    **dict.fromkeys(("tuned.*.within_pct", "tuned.*.bound_pct"), 1e6),
    **dict.fromkeys(("tuned.*.gain.*", "tuned.*.audits.*.predicted", "tuned.*.audits.*.measured"), 1e6),
    "protocol.ci_target_pct": 1e3,
    **dict.fromkeys(("cluster.node", "cluster.nodes"), 1e6),
    "parent_cpu_pct": 100.0 * CORES,
    **dict.fromkeys(("noise_before.gpu_throttle_reasons", "noise_after.gpu_throttle_reasons"), 2.0**63),
}
"""Field to the most that it can be; all others: ``EXACT``."""

_CLAIM = "[a-z0-9][a-z0-9_-]{0,63}"
_ENDED = ("target", "blocks", "budget", "interrupted", "ended")
_VALUE = r"(?:[\w.+,-]{1,100}|'[\w.+,@ -]{1,100}')"
"""What a shell and make take as it stands: no expansion, no second command."""
SCRIPT_COMMANDS = {"script": "feedrate run -- ", "tune": "feedrate tune -- "}
"""Suite of a script's run to what its command begins with; the script's name follows."""
_COMMAND = (
    rf"make sweep(?: (?:PROFILE|SUITE|BUDGET|MATRIX|TUNE|DATA|DATA_ROOT)={_VALUE})*"
    r"(?: ON=(?:slurm|local) NODES=[1-9][0-9]{0,5} TOGETHER=1)?|"
    rf"(?:{'|'.join(SCRIPT_COMMANDS.values())})(?a:{FREE_NAME.pattern})"
)
_NAMES: dict[str, str] = {
    "suites": NAME,
    "outcomes": "|".join(OUTCOMES),
    "cell_seconds": CELL_ID,
    "cell_spread": CELL_ID,
    "untestable": _CLAIM,
}
"""Field to the pattern of the names in it, which the run chose."""
_TEXTS: dict[str, str] = {
    "run_id": findings.RUN_ID,
    "device": "cpu|cuda",
    "machine.node": "[0-9a-f]{8}",
    "cluster.sweep": findings.RUN_ID,
    "feedrate_version": "[0-9A-Za-z.+-]{1,40}",
    "profile": r"[\w.+ -]{1,100}",
    "started_at": findings.MOMENT,
    "ended_at": findings.MOMENT,
    "stop_reason": "|".join(_ENDED),
    "control": CELL_ID,
    "contrasts.*.axis": NAME,
    "contrasts.*.cell_a": CELL_ID,
    "contrasts.*.cell_b": CELL_ID,
    "contrasts.*.reason": "|".join((*_ENDED, "failed")),
    "claims.*.claim": _CLAIM,
    "claims.*.reason": "|".join((*_ENDED, "done", "failed")),
    "datasets.*.name": r"[a-z0-9_](?:[.-]?[A-Za-z0-9_])*",
    "datasets.*.storage_format": NAME,
    "datasets.*.data_hash": findings.DATA_HASH,
    **dict.fromkeys(("tuned.*.recommended", "tuned.*.present", "tuned.*.audits.*.cell_id"), CELL_ID),
}
"""Field to the pattern of its text."""

_UNPRINTABLE = re.compile(f"[{INVISIBLE}]")


def read_manifest(text: bytes, where: str) -> tuple[dict[str, Any], RunManifest]:
    """Read a manifest of others: its fields as they stand in the file, and the manifest of this schema version.

    Raises:
        Refused: it is none, or holds what no run says of itself.
    """
    try:
        return _read(text)
    except Refused as error:
        raise Refused(replace(error.finding, where=f"{where} {error.finding.where}")) from error


@lru_cache(maxsize=4)  # the same text lies in every table of a run
def _read(text: bytes) -> tuple[dict[str, Any], RunManifest]:
    where = "manifest"
    if not text:
        raise MANIFEST.refused(where, "none in its metadata", "one under the key 'feedrate'")
    caps.MANIFEST_BYTES.check(len(text), where)
    try:
        fields = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise MANIFEST.refused(where, f"no JSON ({quote(str(error))})", "a manifest as JSON") from error
    try:
        manifest = migration.manifest(text, where)
    except InputError as error:
        new = isinstance(fields, dict) and fields.get("schema_version") not in migration.READ
        got = quote(str(error).removeprefix(f"{where}: "), 400)[1:-1]
        raise (VERSION if new else MANIFEST).refused(where, got, "a manifest that this feedrate reads") from error
    own = fields["machine"].get("machine_id")
    if own != manifest.machine.machine_id:
        raise MACHINE_ID.refused(where, quote(own), f"{quote(manifest.machine.machine_id)} by its hardware facts")
    version = fields["schema_version"]
    _compare(migration.current_fields(fields, version), migration.fields_of(manifest, version), version > 1, where)
    check_fields(fields, where)
    return fields, manifest


def _compare(own: Any, read: Any, complete: bool, where: str) -> None:
    """Refuse a value that is not what a manifest's fields make of it: read leniently, or not read at all."""
    if isinstance(own, dict) and isinstance(read, dict):
        if other := own.keys() ^ read.keys() if complete else own.keys() - read.keys():
            name = min(other)
            got = f"{quote(name)} is there" if name in own else f"no {quote(name)}"
            raise MANIFEST.refused(where, got, "the fields that a manifest has, each of them and none besides")
        for name, value in own.items():
            _compare(value, read[name], complete, f"{where}.{quote(name)[1:-1]}")
    elif isinstance(own, list) and isinstance(read, list):
        for pair in zip(own, read, strict=True):
            _compare(*pair, complete, where)
    elif type(own) is not type(read) or own != read:
        raise MANIFEST.refused(where, quote(own), f"{quote(read)}, of its type")


def check_fields(fields: dict[str, Any], where: str) -> None:
    """Hold the fields of a manifest against the tables."""
    for path, value in _leaves(fields, "", 0):
        place = f"{where}.{path}"
        if isinstance(value, str):
            if len(value) > caps.TEXT_CHARACTERS.most or _UNPRINTABLE.search(value):
                raise MANIFEST_TEXT.refused(place, quote(value), "a short line of plain text")
            if path == "command" and not re.fullmatch(_COMMAND, value):
                expected = "make sweep and NAME=value, without what a shell or make expands"
                raise COMMAND.refused(place, quote(value), f"{expected}, or feedrate run (or tune) -- NAME")
            if path in _TEXTS and not re.fullmatch(_TEXTS[path], value):
                raise MANIFEST_NAME.refused(place, quote(value), f"a text such as {_TEXTS[path]}")
        elif not isinstance(value, bool) and not 0 <= value <= (most := _MOST.get(path, EXACT)):
            raise MANIFEST_RANGE.refused(place, quote(value), f"0 to {most:g}")
    fewest, most = fields["protocol"]["blocks"]
    if fewest > most:
        got = f"{fewest} to {most}"
        raise MANIFEST_RANGE.refused(f"{where}.protocol.blocks", got, "the fewest before the most")


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every text and number with its path; names that no field has, and too many levels, are refused on the way."""
    caps.MANIFEST_DEPTH.check(depth, "manifest")
    if isinstance(value, dict):
        own = _NAMES.get(path)
        for name, each in value.items():
            if not re.fullmatch(own or NAME, name):
                place = f"manifest.{path}".rstrip(".")
                raise MANIFEST_NAME.refused(place, quote(name), f"a name such as {own or NAME}")
            yield from _leaves(each, f"{path}.{'*' if own else name}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, f"{path}.*", depth + 1)
    elif value is not None:
        yield path, value
