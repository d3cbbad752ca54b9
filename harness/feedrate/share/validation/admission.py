"""Which runs the website may show: those that keep to every rule, in their place, and beside which nothing is damaged.

Runs that passed under today's rules are remembered by the hashes of their files, so that the next build need not
validate them again. A file beside a run is read by every page that names the run; one that cannot be read leaves out
that run, with the reason. What it wanted to say is not guessed: it may have been a withdrawal.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from feedrate.machine.identity import usable_cores
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import PACKAGE
from feedrate.share.validation import check
from feedrate.share.validation.findings import Finding, Rule, Validated, quote
from feedrate.share.validation.guard import Gone, Guard
from feedrate.store import marks

UNIQUE = Rule("unique", "No two machines have a run of the same id: where they do, none of those runs is shown.")
BESIDE = Rule("beside", "What lies beside a run's folder is as feedrate writes it.")
TOGETHER_BYTES = 4 * 2**20
"""Runs are validated together as long as their files are no larger than this: steps decode to thirty times as much."""
TOGETHER = 100
"""And no more of them than this."""
_RULES_LIE_IN = ("schema", "machine", "store", "share", "formats", "workloads", "trial/checks")
_READERS = ("numpy", "pyarrow", "pydantic", "pydantic-core")
"""Libraries that decide what a file holds."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Which runs may be shown."""

    folders: tuple[Path, ...]
    """Of those that may, in the order in which they came."""
    refused: tuple[Validated, ...]
    """The others, each with its reasons."""


def admit(folders: Sequence[Path], memory: Path | None = None) -> Admitted:
    """Say which runs may be shown.

    Many runs are validated together, on all cores, and one by one only where something is wrong. A run whose files
    were seen before, by their hashes, is not validated again as long as the rules are the same.

    Args:
        folders: of runs.
        memory: the file that remembers what passed; None remembers nothing.
    """
    rules = _fingerprint() if memory else ""
    passed = _read_passed(memory, rules) if memory else frozenset()
    lanes = max(1, min(len(usable_cores()), len(folders)))
    with ThreadPoolExecutor(lanes) as pool:
        parts = list(pool.map(lambda lane: _validate(folders[lane::lanes], passed), range(lanes)))
    refused = {Path(each.path): each for _, part in parts for each in part}
    if memory:
        _write_passed(memory, rules, {digest for digests, _ in parts for digest in digests.values()})
    of_id: defaultdict[str, list[Path]] = defaultdict(list)
    for folder in folders:
        if folder not in refused:
            of_id[folder.name].append(folder)
    for folder in [folder for alike in of_id.values() for folder in alike]:
        if finding := _claimed_twice(folder, of_id[folder.name]) or _damaged(folder):
            refused[folder] = Validated(str(folder), findings=(finding,))
    return Admitted(
        tuple(folder for folder in folders if folder not in refused),
        tuple(refused[folder] for folder in folders if folder in refused),
    )


def _claimed_twice(folder: Path, alike: Sequence[Path]) -> Finding | None:
    """Refuse a run whose id another machine's run has too: which one is true cannot be told from here."""
    if others := [quote(other.parent.name) for other in alike if other != folder]:
        got = f"a run of this id under {', '.join(others)} too"
        return UNIQUE.finding("the folder", got, "an id of one machine's run")
    return None


def _damaged(folder: Path) -> Finding | None:
    try:
        marks.about(folder)
    except InputError as error:
        got, _, wanted = str(error).removeprefix(f"{folder.parent}/").partition("; expected ")
        return BESIDE.finding("beside the folder", got, wanted or "what feedrate writes there")
    return None


def _validate(folders: Sequence[Path], passed: frozenset[str]) -> tuple[dict[Path, str], list[Validated]]:
    """Validate runs in one guarded process: the hashes of those that pass or passed before, and the others."""
    digests: dict[Path, str] = {}
    refused: list[Validated] = []
    with Guard() as guard:
        for at in range(0, len(folders), TOGETHER):
            some = folders[at : at + TOGETHER]
            if passed:
                digests |= {folder: digest for folder, digest in _hash(guard, some).items() if digest in passed}
            for group in _small_groups([folder for folder in some if folder not in digests]):
                digests |= _clear(guard, group)
                for folder in [folder for folder in group if folder not in digests]:
                    before = _hash(guard, [folder])
                    if (judged := check.judge(guard, folder, placed=True)).valid:
                        digests |= before
                    else:
                        refused.append(judged)
    return digests, refused


def _hash(guard: Guard, folders: Sequence[Path]) -> dict[Path, str]:
    """Hash the files of runs, as far as they are what a run's folder holds."""
    with suppress(Gone):
        answer = guard.ask({"digests": [str(folder.absolute()) for folder in folders]})
        return {folder: digest for folder, digest in zip(folders, answer.get("digests", ()), strict=False) if digest}
    return {}


def _clear(guard: Guard, folders: Sequence[Path]) -> dict[Path, str]:
    """Validate runs together; hash the files of all of them where nothing is wrong with any."""
    with suppress(Gone):
        digests = guard.ask({"clear": [str(folder.absolute()) for folder in folders]}).get("clear") or {}
        return {folder: digest for folder in folders if (digest := digests.get(str(folder.absolute())))}
    return {}


def _small_groups(folders: Iterable[Path]) -> Iterator[list[Path]]:
    group: list[Path] = []
    size = 0
    for folder in folders:
        own = sum(path.lstat().st_size for path in folder.glob("*"))
        if group and size + own > TOGETHER_BYTES:
            yield group
            group, size = [], 0
        group.append(folder)
        size += own
    if group:
        yield group


def _read_passed(memory: Path, rules: str) -> frozenset[str]:
    """Hashes of the runs that passed under these rules."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        held = json.loads(memory.read_bytes())
        return frozenset(held["passed"]) if held["rules"] == rules else frozenset()
    return frozenset()


def _write_passed(memory: Path, rules: str, digests: Iterable[str]) -> None:
    """Remember those of today; a folder that cannot be written remembers nothing."""
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=memory.parent, delete=False, encoding="ascii") as file:
            json.dump({"rules": rules, "passed": sorted(digests)}, file)
        Path(file.name).replace(memory)


def _fingerprint() -> str:
    """Hash whatever the rules depend on."""
    whole = hashlib.sha256(repr([version(name) for name in _READERS]).encode())
    for path in rule_files():
        whole.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def rule_files() -> list[Path]:
    """List the files of feedrate that a verdict depends on."""
    below = [path for folder in _RULES_LIE_IN for path in sorted((PACKAGE / folder).rglob("*.py"))]
    return [PACKAGE / "__init__.py", *below]
