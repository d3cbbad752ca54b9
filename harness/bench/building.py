"""What it takes to build a website: time, and the memory of all processes that take part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.bench import watched
from harness.errors import FeedrateError


@dataclass(frozen=True, slots=True)
class Built:
    """A site, and what building it took."""

    what: str
    """Whose: ``5 measured runs``, ``100 made-up machines, 10,400 trials``."""
    folder: Path
    took_s: float
    peak_bytes: int
    """Memory of the build and all of its processes: ``watched.Ended.peak_bytes``."""


def build(what: str, results: Path, out: Path) -> Built:
    """Build a site by the command that people type, and watch it to its end.

    Args:
        what: whose results these are, in words.
        results: the folder of runs.
        out: gets the site.

    Raises:
        FeedrateError: it was not built.
    """
    ended = watched.harness("site", "--results", str(results.resolve()), "--out", str(out), memory=True)
    if ended.status:
        raise FeedrateError(f"bench: the site of {what} was not built: {ended.complained or ended.status}")
    return Built(what, out / "site", ended.took_s, ended.peak_bytes or 0)
