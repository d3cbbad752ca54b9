"""What validation found, on the terminal and as JSON for machines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from rich.console import Console

from harness import __version__
from harness.charts._words import plural
from harness.errors import InputError
from harness.incoming import check
from harness.incoming.findings import Finding, Validated
from harness.incoming.guard import READABLE


def validate(paths: Sequence[Path], results: Path, console: Console | None) -> list[Validated]:
    """Hold files against the rules and print what was found.

    Args:
        paths: files of trials, runs' folders, or folders of runs.
        results: where runs of other machines lie, to flag what is odd beside them.
        console: where it goes; None prints nothing.

    Returns:
        What was found, file by file; a path that names nothing is refused, and comes first.
    """
    nowhere = {path: lost for path in paths if (lost := _nowhere(path))}
    validated = []
    for one in chain(nowhere.values(), check.checked([path for path in paths if path not in nowhere], results)):
        validated.append(one)
        if console:
            _show(one, console)
    if console and len(validated) > 1:
        refused = sum(not one.valid for one in validated)
        _say(console, f"{len(validated) - refused} valid, {refused} refused.", "red" if refused else "green")
    return validated


def as_json(validated: Sequence[Validated]) -> str:
    """Write what was found as one JSON object, for machines."""
    valid = sum(one.valid for one in validated)
    counts = {"valid": valid, "refused": len(validated) - valid}
    return json.dumps({"feedrate": __version__, **counts, "files": [one.as_json() for one in validated]}, indent=1)


def _nowhere(path: Path) -> Validated | None:
    """Refuse a path that names nothing."""
    try:
        check.found_at(path)
    except InputError:
        got = "holds no run" if os.path.lexists(path) else "no such file"
        wanted = "a trials.parquet, a run's folder, or a folder of runs"
        return Validated(str(path), findings=(Finding(READABLE.name, "refused", "the path", got, wanted),))
    return None


def _show(one: Validated, console: Console) -> None:
    """One file: whether it may be used, and why not."""
    name = ascii(one.path)[1:-1]
    if one.valid:
        odd = f", {plural(len(one.flags), 'flag')} for a reviewer" if one.flags else ""
        trials = plural(one.rows or 0, "trial")
        _say(console, f"valid    {name}: run {one.run_id} of {one.machine_id}, {trials}{odd}", "green")
    else:
        _say(console, f"refused  {name}", "red")
    for finding in one.findings:
        _finding(finding, console)


def _finding(finding: Finding, console: Console) -> None:
    _say(console, f"  {finding.where}: {finding.got}")
    aim = "usual" if finding.severity == "flag" else "expected"
    _say(console, f"    {aim}: {finding.expected} (rule {finding.rule})", "dim")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
