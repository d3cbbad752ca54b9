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
from itertools import zip_longest
from typing import Any

from pydantic_core import from_json

from feedrate.schema.axes import FREE_NAME
from feedrate.schema.columns import OUTCOMES, PROTOCOL_VERSION, SCHEMA_VERSION
from feedrate.schema.errors import InputError
from feedrate.schema.redaction import INVISIBLE
from feedrate.share.validation import caps, findings
from feedrate.share.validation.findings import CELL_ID, NAME, Refused, Rule, quote
from feedrate.store.manifest import RunManifest
from feedrate.store.manifest import read_manifest as read_stored

MANIFEST = Rule("manifest", "The manifest is one that feedrate wrote: every field there, of its type, none besides.")
VERSION = Rule("version", "Its schema version is this feedrate's or an earlier one.")
MACHINE_ID = Rule("machine_id", "The machine's id is computed anew from its hardware facts.")
MANIFEST_RANGE = Rule(
    "manifest_range", "Every number of the manifest lies where it can: none is negative, none beyond reason."
)
MANIFEST_TEXT = Rule(
    "manifest_text",
    "Ids, hashes, times, words and the names of fields in the manifest match the pattern that feedrate writes; other "
    "texts are one short line.",
)
COMMAND = Rule(
    "command",
    "The command that repeats the run is feedrate sweep with plain values, as it is shown to be typed, or feedrate run "
    "or feedrate tune with the script's name.",
)
RULES = (MANIFEST, VERSION, MACHINE_ID, MANIFEST_RANGE, MANIFEST_TEXT, COMMAND)

EXACT = 2.0**53
"""Whole numbers up to here are exact as float64, and in JavaScript."""
CORES = 4096
"""No machine has more."""
_MOST: dict[str, float] = {
    **dict.fromkeys(("cells", "ceilings", "blocks", "protocol.blocks.*", "cluster.node", "cluster.nodes"), 1e6),
    **dict.fromkeys(("protocol.warmup_s", "protocol.window_s", "protocol.timeout_s", "budget_s"), 1e6),
    **dict.fromkeys(("cell_seconds.*", "datasets.*.pack_s", "cell_spread.*.sd", "cell_spread.*.within"), 1e6),
    **dict.fromkeys(("tuned.*.settings", "outcomes.*"), 1e7),
    "machine.cores_logical": CORES,
    "parent_cpu_pct": 100.0 * CORES,
    **dict.fromkeys(("noise_before.gpu_throttle_reasons", "noise_after.gpu_throttle_reasons"), 2.0**63),
}
"""Field to the most that it can be; all others: ``EXACT``."""

_CLAIM = "[a-z0-9][a-z0-9_-]{0,63}"
_ENDED = ("target", "blocks", "budget", "interrupted", "ended")
_VALUE = r"(?:[\w.+,-]{1,100}|'[\w.+,@ -]{1,100}')"
"""What a shell takes as it stands: no expansion, no second command."""
SCRIPT_COMMANDS = {"script": "feedrate run -- ", "tune": "feedrate tune -- "}
"""Suite of a script's run to what its command begins with; the script's name follows."""
_COMMAND = (
    rf"feedrate sweep(?: --(?:profile|suite|budget|matrix|data|data-root) {_VALUE}| --tune)*"
    r"(?: --on (?:slurm|local) --nodes [1-9][0-9]{0,5} --together)?|"
    # What runs of earlier versions say.
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
    **dict.fromkeys(("run_id", "cluster.sweep"), findings.RUN_ID),
    "device": "cpu|cuda",
    "machine.node": "[0-9a-f]{8}",
    "feedrate_version": "[0-9A-Za-z.+-]{1,40}",
    "profile": r"[\w.+ -]{1,100}",
    **dict.fromkeys(("started_at", "ended_at"), findings.MOMENT),
    **dict.fromkeys(("stop_reason", "contrasts.*.reason", "claims.*.reason"), "|".join((*_ENDED, "done", "failed"))),
    "claims.*.claim": _CLAIM,
    "datasets.*.name": r"[a-z0-9_](?:[.-]?[A-Za-z0-9_])*",
    **dict.fromkeys(("datasets.*.storage_format", "contrasts.*.axis"), NAME),
    "datasets.*.data_hash": findings.DATA_HASH,
    **dict.fromkeys(("control", "contrasts.*.cell_a", "contrasts.*.cell_b"), CELL_ID),
    **dict.fromkeys(("tuned.*.recommended", "tuned.*.present", "tuned.*.audits.*.cell_id"), CELL_ID),
}
"""Field to the pattern of its text."""
_PLAIN = f"[^{INVISIBLE}]{{0,{caps.TEXT_CHARACTERS.most}}}"


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
    caps.MANIFEST_BYTES.check(len(text), where)
    try:
        fields = from_json(text, allow_inf_nan=False)
        manifest = read_stored(text, where)
    except ValueError as error:
        got = quote(str(error)) if text else "none in its metadata"
        raise MANIFEST.refused(where, got, "a manifest as JSON under the key 'feedrate'") from error
    except InputError as error:
        new = isinstance(fields, dict) and (fields.get("schema_version"), fields.get("protocol_version")) != (
            SCHEMA_VERSION,
            PROTOCOL_VERSION,
        )
        got = quote(str(error).removeprefix(f"{where}: "), 400)[1:-1]
        raise (VERSION if new else MANIFEST).refused(where, got, "a manifest that this feedrate reads") from error
    recorded = fields["machine"].get("machine_id")
    if recorded != manifest.machine.machine_id:
        expected = f"{quote(manifest.machine.machine_id)} by its hardware facts"
        raise MACHINE_ID.refused(where, quote(recorded), expected)
    _compare(fields, manifest.model_dump(mode="json"), True, where)
    check_fields(fields, where)
    return fields, manifest


def _compare(recorded: Any, read: Any, complete: bool, where: str) -> None:
    """Refuse a value that is not what a manifest's fields make of it: read leniently, or not read at all."""
    if isinstance(recorded, dict) and isinstance(read, dict):
        if other := recorded.keys() ^ read.keys() if complete else recorded.keys() - read.keys():
            name = min(other)
            got = f"{quote(name)} is there" if name in recorded else f"no {quote(name)}"
            raise MANIFEST.refused(where, got, "the fields that a manifest has, each of them and none besides")
        for name, value in recorded.items():
            _compare(value, read[name], complete, f"{where}.{quote(name)[1:-1]}")
    elif isinstance(recorded, list) and isinstance(read, list):
        for pair in zip_longest(recorded, read):
            _compare(*pair, complete, where)
    elif type(recorded) is not type(read) or recorded != read:
        raise MANIFEST.refused(where, quote(recorded), f"{quote(read)}, of its type")


def check_fields(fields: dict[str, Any], where: str) -> None:
    """Hold the fields of a manifest against the tables."""
    for path, value in _leaves(fields, "", 0):
        place = f"{where}.{path}"
        if isinstance(value, str):
            if not re.fullmatch(_TEXTS.get(path, _PLAIN), value) or not re.fullmatch(_PLAIN, value):
                raise MANIFEST_TEXT.refused(place, quote(value), f"a text such as {_TEXTS.get(path, 'a short line')}")
            if path == "command" and not re.fullmatch(_COMMAND, value):
                expected = "feedrate sweep and --NAME value, without what a shell expands"
                raise COMMAND.refused(place, quote(value), f"{expected}, or feedrate run (or tune) -- NAME")
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
        pattern = _NAMES.get(path)
        for name, content in value.items():
            if not re.fullmatch(pattern or NAME, name):
                place = f"manifest.{path}".rstrip(".")
                raise MANIFEST_TEXT.refused(place, quote(name), f"a name such as {pattern or NAME}")
            yield from _leaves(content, f"{path}.{'*' if pattern else name}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for content in value:
            yield from _leaves(content, f"{path}.*", depth + 1)
    elif value is not None:
        yield path, value
