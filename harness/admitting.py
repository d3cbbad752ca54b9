"""Which runs the website may show: those that keep to every rule, and beside which nothing is damaged.

A file beside a run is read by every page that names the run; one that cannot be read leaves out that run, with the
reason, and not the whole site. What it wanted to say is not guessed: it may have been a withdrawal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness import store_beside
from harness.errors import InputError
from harness.incoming import check
from harness.incoming.check import Admitted
from harness.incoming.findings import Finding, Rule, Validated

BESIDE = Rule("beside", "What lies beside a run's folder is as feedrate writes it.")


def admitted(folders: Sequence[Path], remembered: Path | None = None) -> Admitted:
    """Say which runs may be shown.

    Args:
        folders: of runs.
        remembered: a file that remembers what passed (``check.admitted``).
    """
    found = check.admitted(folders, remembered)
    damaged = {folder: why for folder in found.folders if (why := _damaged(folder))}
    return Admitted(
        tuple(folder for folder in found.folders if folder not in damaged),
        (*found.refused, *(Validated(str(folder), findings=(why,)) for folder, why in damaged.items())),
    )


def _damaged(folder: Path) -> Finding | None:
    try:
        store_beside.about(folder)
    except InputError as error:
        got, _, wanted = str(error).removeprefix(f"{folder.parent}/").partition("; expected ")
        return Finding(BESIDE.name, "refused", "beside the folder", got, wanted or "what feedrate writes there")
    return None
