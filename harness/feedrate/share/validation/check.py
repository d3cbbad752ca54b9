"""Files of others, and runs under ``results/``, held against the rules in a guarded process.

This is what commands, the site and a submission call. Nothing here loads a library that reads files.

A memory of the runs that passed under today's rules, so that a site's next build need not look at them again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from feedrate.machine.identity import usable_cores
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import PACKAGE
from feedrate.schema.redaction import scrub
from feedrate.share.validation.findings import Finding, Refused, Rule, Validated, shown
from feedrate.share.validation.guard import READ, READABLE, Gone, Guard

_RULES_LIE_IN = ("schema", "machine", "store", "share", "formats", "workloads", "trial/checks")
_READERS = ("numpy", "pyarrow", "pydantic", "pydantic-core")
"""Libraries that decide what a file holds."""


class Passed:
    """Hashes of runs that passed under today's rules."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rules = _fingerprint() if path else ""
        self.before: frozenset[str] = frozenset()
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            held = json.loads(path.read_bytes()) if path else {}
            self.before = frozenset(held["passed"]) if held["rules"] == self._rules else frozenset()

    def write(self, passed: Iterable[str]) -> None:
        """Remember those of today; a folder that cannot be written remembers nothing."""
        if self._path is None:
            return
        text = json.dumps({"rules": self._rules, "passed": sorted(set(passed))})
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False, encoding="ascii") as file:
                file.write(text)
            Path(file.name).replace(self._path)


def _fingerprint() -> str:
    """Hash whatever the rules depend on."""
    whole = hashlib.sha256(repr([version(name) for name in _READERS]).encode())
    for path in rules_lie_in():
        whole.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def rules_lie_in() -> list[Path]:
    """List the files of feedrate that a verdict depends on."""
    below = [path for folder in _RULES_LIE_IN for path in sorted((PACKAGE / folder).rglob("*.py"))]
    return [PACKAGE / "__init__.py", *below]


UNIQUE = Rule("unique", "No two machines have a run of the same id: where they do, none of those runs is shown.")

TOGETHER_BYTES = 4 * 2**20
"""Runs are looked at together as long as their files are no larger than this: steps decode to thirty times as much."""
TOGETHER = 100
"""And no more of them than this."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Which runs may be shown."""

    folders: tuple[Path, ...]
    """Of those that may, in the order in which they came."""
    refused: tuple[Validated, ...]
    """The others, each with its reasons."""


def check(path: Path, results: Path | None = None, *, placed: bool = False) -> Validated:
    """Hold one file of trials, or one run's folder, against the rules.

    Args:
        path: of either.
        results: where runs of other machines lie, to flag what is odd beside them; None flags nothing.
        placed: whether the folder must be named for its run, below one that is named for its machine; one that lies
            below ``results`` must in any case.
    """
    with Guard() as guard:
        return _looked_at(guard, path, results, placed)


def checked(paths: Iterable[Path], results: Path | None = None) -> Iterator[Validated]:
    """Hold files of trials, and runs' folders, against the rules, one after the other.

    Raises:
        InputError: a path names nothing.
    """
    every = [(found, found != path) for path in paths for found in found_at(path)]
    with Guard() as guard:
        for path, placed in every:
            yield _looked_at(guard, path, results, placed)


def _looked_at(guard: Guard, path: Path, results: Path | None, placed: bool) -> Validated:
    """Hold one against the rules, and flag what is odd; when that cannot be told nothing is."""
    within = results is not None and path.absolute().is_relative_to(results.absolute())
    judged = _judged(guard, path, placed=placed or within)
    if results is None or not judged.valid:
        return judged
    flags: list[dict[str, Any]] = []
    with suppress(Gone):
        asked = guard.ask({"flags": str(path.absolute()), "results": str(results.absolute())})
        flags = asked.get("flags", [])
    return replace(judged, findings=tuple(Finding(**flag) for flag in flags))


def found_at(path: Path) -> list[Path]:
    """List what a path names: a file, a run's folder, or every run below a folder such as ``results``.

    Raises:
        InputError: there is nothing.
    """
    if path.is_dir() and not (path / "run.json").exists() and not (path / "trials.parquet").exists():
        runs = {run.parent for depth in ("*", "*/*") for run in path.glob(f"{depth}/run.json")}
        if not runs:
            raise InputError(f"{path}: holds no run; expected a trials.parquet, a run's folder, or a folder of runs")
        return sorted(runs, key=lambda folder: (folder.name, folder))
    if not os.path.lexists(path):
        raise InputError(f"{path}: no such file; expected a trials.parquet, a run's folder, or a folder of runs")
    return [path]


def admitted(folders: Sequence[Path], remembered: Path | None = None) -> Admitted:
    """Say which runs may be shown: those that keep to every rule and lie where they belong.

    Many runs are looked at together, on all cores, and one by one only where something is wrong. A run whose files were
    seen before, by their hashes, is not looked at again as long as the rules are the same.
    """
    passed = Passed(remembered)
    lanes = max(1, min(len(usable_cores()), len(folders)))
    with ThreadPoolExecutor(lanes) as pool:
        looked = list(pool.map(lambda lane: _look(lane, passed.before), [folders[at::lanes] for at in range(lanes)]))
    digests = {folder: digest for lane in looked for folder, digest in lane.digests.items()}
    refused = {Path(found.path): found for lane in looked for found in lane.refused}
    passed.write(digests.values())
    refused |= _of_several([folder for folder in folders if folder not in refused])
    return Admitted(
        tuple(folder for folder in folders if folder not in refused),
        tuple(refused[folder] for folder in folders if folder in refused),
    )


def _of_several(folders: Sequence[Path]) -> dict[Path, Validated]:
    """Runs whose id another machine's run has too: which one is true cannot be told from here."""
    of_id: defaultdict[str, list[Path]] = defaultdict(list)
    for folder in folders:
        of_id[folder.name].append(folder)
    found: dict[Path, Validated] = {}
    for folder in [folder for alike in of_id.values() if len(alike) > 1 for folder in alike]:
        others = [shown(other.parent.name) for other in of_id[folder.name] if other != folder]
        finding = Refused(
            UNIQUE.name, "the folder", f"a run of this id under {', '.join(others)} too", "an id of one machine's run"
        ).finding
        found[folder] = Validated(str(folder), findings=(finding,))
    return found


@dataclass(frozen=True, slots=True)
class _Looked:
    """What one process found."""

    digests: dict[Path, str]
    refused: list[Validated]


def _look(folders: Sequence[Path], passed: frozenset[str]) -> _Looked:
    found = _Looked({}, [])
    with Guard() as guard:
        for at in range(0, len(folders), TOGETHER):
            _look_at(guard, folders[at : at + TOGETHER], passed, found)
    return found


def _look_at(guard: Guard, folders: Sequence[Path], passed: frozenset[str], found: _Looked) -> None:
    """Note the hashes of runs that passed, today or before, and what is wrong with the others."""
    told = _digests(guard, folders) if passed else {}
    found.digests.update({folder: digest for folder, digest in told.items() if digest in passed})
    for group in _small_groups([folder for folder in folders if folder not in found.digests]):
        found.digests.update(_cleared(guard, group))
        for folder in [folder for folder in group if folder not in found.digests]:
            before = _digests(guard, [folder])
            if (judged := _judged(guard, folder, placed=True)).valid:
                found.digests.update(before)
            else:
                found.refused.append(judged)


def _digests(guard: Guard, folders: Sequence[Path]) -> dict[Path, str]:
    """Hash the files of runs, as far as they are what a run's folder holds."""
    told: Sequence[str | None] = ()
    with suppress(Gone):
        told = guard.ask({"digests": [str(folder.absolute()) for folder in folders]}).get("digests", ())
    return {folder: digest for folder, digest in zip(folders, told, strict=False) if digest}


def _cleared(guard: Guard, folders: Sequence[Path]) -> dict[Path, str]:
    """Runs that were cleared together, with the hashes of their files: all of them, or none."""
    told: dict[str, str] = {}
    with suppress(Gone):
        told = guard.ask({"clear": [str(folder.absolute()) for folder in folders]}).get("clear") or {}
    return {folder: digest for folder in folders if (digest := told.get(str(folder.absolute())))}


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


def _judged(guard: Guard, path: Path, *, placed: bool) -> Validated:
    try:
        answer = guard.ask({"judge": str(path.absolute()), "placed": placed})
        if judged := answer.get("judged"):
            return replace(Validated.from_json(judged), path=str(path))
        # What is wrong may be this environment: a package that the reader lacks or that does not work.
        why = ": ".join(str(part) for name in ("failed", "why") if (part := answer.get(name)))
        reason = f"a reader failed over it ({shown(scrub(why), 200)})"
    except Gone as gone:
        reason = str(gone)
    return Validated(str(path), findings=(Refused(READABLE.name, shown(path.name), reason, READ).finding,))
