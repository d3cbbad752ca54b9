"""Which runs the website may show: those that keep to every rule, in their place, and beside which nothing is damaged.

A file beside a run is read by every page that names the run; one that cannot be read leaves out that run, with the
reason. What it wanted to say is not guessed: it may have been a withdrawal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from feedrate.machine.identity import usable_cores
from feedrate.schema.errors import InputError
from feedrate.share.validation.findings import Finding, Rule, Validated, quote
from feedrate.share.validation.guard import Guard
from feedrate.store import marks

UNIQUE = Rule("unique", "No two machines have a run of the same id: where they do, none of those runs is shown.")
BESIDE = Rule("beside", "What lies beside a run's folder is as feedrate writes it.")


@dataclass(frozen=True, slots=True)
class Admitted:
    """Which runs may be shown."""

    folders: tuple[Path, ...]
    """Of those that may, in the order in which they came."""
    refused: tuple[Validated, ...]
    """The others, each with its reasons."""


def admit(folders: Sequence[Path]) -> Admitted:
    """Say which of the runs in some folders may be shown; they are validated on all cores."""
    lanes = max(1, min(len(usable_cores()), len(folders)))
    with ThreadPoolExecutor(lanes) as pool:
        parts = list(pool.map(_validate, [folders[lane::lanes] for lane in range(lanes)]))
    found = {folder: validated for part in parts for folder, validated in part.items()}
    claimed = Counter(folder.name for folder in folders if found[folder].valid)
    for folder in [folder for folder in folders if found[folder].valid]:
        if finding := _claimed_twice(folder, claimed) or _damaged(folder):
            found[folder] = replace(found[folder], findings=(finding,))
    return Admitted(
        tuple(folder for folder in folders if found[folder].valid),
        tuple(found[folder] for folder in folders if not found[folder].valid),
    )


def _validate(folders: Sequence[Path]) -> dict[Path, Validated]:
    with Guard() as guard:
        return {folder: guard.check(folder, in_place=True) for folder in folders}


def _claimed_twice(folder: Path, claimed: Counter[str]) -> Finding | None:
    """Refuse a run whose id another machine's run has too: which one is true cannot be told from here."""
    if claimed[folder.name] > 1:
        got = f"a run of the id {quote(folder.name)} under another machine too"
        return UNIQUE.finding("the folder", got, "an id of one machine's run")
    return None


def _damaged(folder: Path) -> Finding | None:
    try:
        marks.about(folder)
    except InputError as error:
        got, _, wanted = str(error).removeprefix(f"{folder.parent}/").partition("; expected ")
        return BESIDE.finding("beside the folder", got, wanted or "what feedrate writes there")
    return None
