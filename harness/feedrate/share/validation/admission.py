"""Which runs the website may show: those that keep to every rule, in their place, and beside which nothing is damaged.

Runs that passed under today's rules are remembered by the hashes of their files, so that the next build need not
validate them again. A file beside a run is read by every page that names the run; one that cannot be read leaves out
that run, with the reason. What it wanted to say is not guessed: it may have been a withdrawal.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from feedrate.machine.identity import usable_cores
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.plugins import PACKAGE
from feedrate.share.validation import parquet
from feedrate.share.validation.findings import Finding, Refused, Rule, Validated, quote
from feedrate.share.validation.guard import Guard
from feedrate.share.validation.validator import FILES
from feedrate.store import marks
from feedrate.store.runs import write_whole

UNIQUE = Rule("unique", "No two machines have a run of the same id: where they do, none of those runs is shown.")
BESIDE = Rule("beside", "What lies beside a run's folder is as feedrate writes it.")
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

    Runs are validated on all cores. One whose files were seen before, by their hashes, is not validated again as long
    as the rules are the same.

    Args:
        folders: of runs.
        memory: the file that remembers what passed; None remembers nothing.
    """
    rules = _fingerprint() if memory else ""
    passed = _read_passed(memory, rules) if memory else set()
    lanes = max(1, min(len(usable_cores()), len(folders)))
    with ThreadPoolExecutor(lanes) as pool:
        parts = pool.map(lambda lane: list(_validate(folders[lane::lanes], passed)), range(lanes))
        validated = {folder: (digest, refused) for part in parts for folder, digest, refused in part}
    if memory:
        _write_passed(memory, rules, [digest for digest, refused in validated.values() if not refused])
    refused = {folder: refused for folder, (_, refused) in validated.items() if refused}
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


def _validate(folders: Sequence[Path], passed: set[str]) -> Iterator[tuple[Path, str, Validated | None]]:
    """Validate runs in one guarded process: each with the hash of its files, and the result if it is refused."""
    with Guard() as guard:
        for folder in folders:
            digest = _digest(folder)
            result = None if digest in passed else guard.check(folder, in_place=True)
            yield folder, digest, result if result and not result.valid else None


def _digest(folder: Path) -> str:
    """Hash what the rules look at: the files, and the place, which is part of one."""
    whole = folder.absolute()
    names, linked = sorted(path.name for path in whole.iterdir()), whole.is_symlink() or whole.parent.is_symlink()
    hashes = hashlib.sha256(json.dumps([*whole.parts[-2:], linked, names]).encode())
    for name in FILES:
        with suppress(Refused):
            hashes.update(hashlib.sha256(parquet.read(whole / name)).digest())
    return hashes.hexdigest()


def _read_passed(memory: Path, rules: str) -> set[str]:
    """Hashes of the runs that passed under these rules."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        held = json.loads(memory.read_bytes())
        return set(held["passed"]) if held["rules"] == rules else set()
    return set()


def _write_passed(memory: Path, rules: str, passed: Sequence[str]) -> None:
    """Remember those of today; a folder that cannot be written remembers nothing."""
    with suppress(OSError, EnvironmentFault):
        memory.parent.mkdir(parents=True, exist_ok=True)
        write_whole(memory, json.dumps({"rules": rules, "passed": passed}).encode())


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
