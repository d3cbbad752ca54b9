"""What the fields of a manifest may hold: numbers by what they count, texts by what they are for.

A manifest is looked at as it stands in the file, before anything is made of it. Fields are named by their path, with a
star for each element of a list and for each name that the run itself chose. What no table names is a number of zero or
more, or any plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from harness.incoming import patterns
from harness.incoming.findings import Refused, Rule, shown
from harness.incoming.patterns import CELL_ID, NAME
from harness.records import OUTCOMES

STATED = Rule("manifest_range", "Every number of the manifest lies where it can: none is negative, none beyond reason.")
WORDS = Rule(
    "manifest_name",
    "Ids, hashes, times, words and the names of fields in the manifest match the pattern that feedrate writes.",
)
COMMAND = Rule(
    "command", "The command that repeats the run is make sweep with plain values, as it is shown to be typed."
)
RULES = (STATED, WORDS, COMMAND)

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
    "protocol.ci_target_pct": 1e3,
    "parent_cpu_pct": 100.0 * CORES,
    **dict.fromkeys(("noise_before.gpu_throttle_reasons", "noise_after.gpu_throttle_reasons"), 2.0**63),
}
"""Field to the most that it can be; all others: ``EXACT``."""

_CLAIM = "[a-z0-9][a-z0-9_-]{0,63}"
_ENDED = ("target", "blocks", "budget", "interrupted")
_VALUE = r"(?:[\w.+,-]{1,100}|'[\w.+,@ -]{1,100}')"
"""What a shell and make take as it stands: no expansion, no second command."""
_COMMAND = rf"make sweep(?: (?:PROFILE|SUITE|BUDGET|MATRIX|DATA|DATA_ROOT)={_VALUE})*"
_NAMES: dict[str, str] = {
    "suites": NAME,
    "outcomes": "|".join(OUTCOMES),
    "cell_seconds": CELL_ID,
    "cell_spread": CELL_ID,
    "untestable": _CLAIM,
}
"""Field to the pattern of the names in it, which the run chose."""
_TEXTS: dict[str, str] = {
    "run_id": patterns.RUN_ID,
    "device": "cpu|cuda",
    "feedrate_version": "[0-9A-Za-z.+-]{1,40}",
    "profile": r"[\w.+ -]{1,100}",
    "started_at": patterns.MOMENT,
    "ended_at": patterns.MOMENT,
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
    "datasets.*.data_hash": patterns.DATA_HASH,
}
"""Field to the pattern of its text."""


def check(said: dict[str, Any], where: str) -> None:
    """Hold the fields of a manifest against the tables.

    Args:
        said: as it stands in the file, its fields of the right types.
        where: names it in findings.

    Raises:
        Refused: one cannot be.
    """
    for path, value in _fields(said, ""):
        if isinstance(value, str):
            _text(path, value, f"{where}.{path}")
        elif not isinstance(value, bool) and not 0 <= value <= (most := _MOST.get(path, EXACT)):
            raise Refused(STATED.name, f"{where}.{path}", shown(value), f"0 to {most:g}")
    fewest, most = said["protocol"]["blocks"]
    if fewest > most:
        raise Refused(STATED.name, f"{where}.protocol.blocks", f"{fewest} to {most}", "the fewest before the most")


def _text(path: str, value: str, where: str) -> None:
    if path == "command" and not re.fullmatch(_COMMAND, value):
        expected = "make sweep and NAME=value, without what a shell or make expands"
        raise Refused(COMMAND.name, where, shown(value), expected)
    if path in _TEXTS and not re.fullmatch(_TEXTS[path], value):
        raise Refused(WORDS.name, where, shown(value), f"a text such as {_TEXTS[path]}")


def _fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every text and number with its path; names that no field has are refused on the way."""
    if isinstance(value, dict):
        own = _NAMES.get(path)
        for name, each in value.items():
            if not re.fullmatch(own or NAME, name):
                raise Refused(WORDS.name, f"manifest.{path}".rstrip("."), shown(name), f"a name such as {own or NAME}")
            yield from _fields(each, f"{path}.{'*' if own else name}".lstrip("."))
    elif isinstance(value, list):
        for each in value:
            yield from _fields(each, f"{path}.*")
    elif value is not None:
        yield path, value
