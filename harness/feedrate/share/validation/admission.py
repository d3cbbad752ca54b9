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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from feedrate.machine.identity import usable_cores
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import PACKAGE
from feedrate.share.validation import check
from feedrate.share.validation.findings import Finding, Rule, Validated, quote
from feedrate.share.validation.guard import Answer, Gone, Guard
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
    passed = _read_passed(memory, rules) if memory else {}
    lanes = max(1, min(len(usable_cores()), len(folders)))
    with ThreadPoolExecutor(lanes) as pool:
        parts = list(pool.map(lambda lane: _validate(folders[lane::lanes], passed), range(lanes)))
    refused = {folder: validated for _, part in parts for folder, validated in part.items()}
    if memory:
        _write_passed(memory, rules, {name: digest for digests, _ in parts for name, digest in digests.items()})
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


def _validate(folders: Sequence[Path], passed: Mapping[str, str]) -> tuple[dict[str, str], dict[Path, Validated]]:
    """Validate runs in one guarded process: the hashes of those that pass, by machine and run, and the others."""
    digests: dict[str, str] = {}
    refused: dict[Path, Validated] = {}
    with Guard() as guard:
        for group in _small_groups(folders):
            names = {str(folder.absolute()): "/".join(folder.parts[-2:]) for folder in group}
            answer: Answer = {}
            with suppress(Gone):
                answer = guard.ask({"admit": {path: passed.get(name) for path, name in names.items()}})
            if "admitted" in answer:
                digests |= {names[path]: digest for path, digest in answer["admitted"].items()}
                wrong = {path: Validated.from_json(validated) for path, validated in answer["refused"].items()}
                found = [(folder, wrong.get(str(folder.absolute()))) for folder in group]
                refused |= {folder: replace(each, path=str(folder)) for folder, each in found if each}
            else:  # it died or failed over one of them
                each_alone = [(folder, check.judge(guard, folder, in_place=True)) for folder in group]
                refused |= {folder: validated for folder, validated in each_alone if not validated.valid}
    return digests, refused


def _small_groups(folders: Iterable[Path]) -> Iterator[list[Path]]:
    group: list[Path] = []
    size = 0
    for folder in folders:
        own = sum(path.lstat().st_size for path in folder.glob("*"))
        if group and (size + own > TOGETHER_BYTES or len(group) == TOGETHER):
            yield group
            group, size = [], 0
        group.append(folder)
        size += own
    if group:
        yield group


def _read_passed(memory: Path, rules: str) -> dict[str, str]:
    """Hashes of the runs that passed under these rules, by machine and run."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        held = json.loads(memory.read_bytes())
        return dict(held["passed"]) if held["rules"] == rules else {}
    return {}


def _write_passed(memory: Path, rules: str, passed: Mapping[str, str]) -> None:
    """Remember those of today; a folder that cannot be written remembers nothing."""
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=memory.parent, delete=False, encoding="ascii") as file:
            json.dump({"rules": rules, "passed": passed}, file)
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
