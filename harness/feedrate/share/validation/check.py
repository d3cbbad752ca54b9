"""Files of others, and runs under ``results/``, held against the rules in a guarded process.

This is what commands and a submission call. Nothing here loads a library that reads files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from feedrate.schema.errors import InputError
from feedrate.schema.redaction import scrub
from feedrate.share.validation.findings import Finding, Validated, quote
from feedrate.share.validation.guard import EXPECTED, READABLE, Gone, Guard


def check(path: Path, results: Path | None = None, *, in_place: bool = False) -> Validated:
    """Hold one file of trials, or one run's folder, against the rules.

    Args:
        path: of either.
        results: where runs of other machines lie, to flag what is odd beside them; None flags nothing.
        in_place: whether the folder must be named for its run, below one that is named for its machine; one that lies
            below ``results`` must in any case.
    """
    with Guard() as guard:
        return _check(guard, path, results, in_place)


def check_all(paths: Iterable[Path], results: Path | None = None) -> Iterator[Validated]:
    """Hold files of trials, and runs' folders, against the rules, one after the other.

    Raises:
        InputError: a path names nothing.
    """
    every = [(file, file != path) for path in paths for file in find_results(path)]
    with Guard() as guard:
        for file, in_place in every:
            yield _check(guard, file, results, in_place)


def find_results(path: Path) -> list[Path]:
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


def _check(guard: Guard, path: Path, results: Path | None, in_place: bool) -> Validated:
    """Hold one against the rules, and flag what is odd; where the guarded process dies over that, nothing is."""
    within = results is not None and path.absolute().is_relative_to(results.absolute())
    judged = judge(guard, path, in_place=in_place or within)
    if results is None or not judged.valid:
        return judged
    flags: list[dict[str, Any]] = []
    with suppress(Gone):
        flags = guard.ask({"flags": str(path.absolute()), "results": str(results.absolute())}).get("flags", [])
    return replace(judged, findings=tuple(Finding(**flag) for flag in flags))


def judge(guard: Guard, path: Path, *, in_place: bool) -> Validated:
    """Have the guarded process hold one file or folder against the rules; what kills it is refused."""
    try:
        answer = guard.ask({"judge": str(path.absolute()), "in_place": in_place})
        if judged := answer.get("judged"):
            return replace(Validated.from_json(judged), path=str(path))
        # What is wrong may be this environment: a package that the reader lacks or that does not work.
        why = ": ".join(str(part) for name in ("failed", "why") if (part := answer.get(name)))
        reason = f"a reader failed over it ({quote(scrub(why), 200)})"
    except Gone as gone:
        reason = str(gone)
    return Validated(str(path), findings=(READABLE.finding(quote(path.name), reason, EXPECTED),))
