"""What files of others cost: to validate one, of usual size and very large, and to compare a large one in the browser.

The files are made up (``generated``, ``repeated``) and keep every rule, so all of each is read. Validation is the
command that people type, the start of Python included. The browser has the whole CPU, and a new page each time.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.bench import comparing, generated, repeated, watched, with_browser
from harness.bench.building import build
from harness.bench.comparing import Shown
from harness.bench.place import Place
from harness.bench_record import Promise
from harness.errors import FeedrateError

SECTION = "files"
USUAL, MANY = 500, 1_000_000
"""Trials of the files that are validated."""
USUAL_S, MANY_S, MANY_GB = 2, 15, 1
FIRST_MS, LONGEST_MS = 1000, 100
_TIMES = {USUAL: 5, MANY: 3}
_OF_CELLS = f"of {len(generated.cells('cpu'))} cells"
_COMPARED = f"the page Compare, given a file of {comparing.ROWS:,} trials {_OF_CELLS}: the first picture"
_HELD_UP = "the longest for which it answers nobody, until all of it stands"


def measure(place: Place) -> list[Promise]:
    """Take the figures of files; about two minutes.

    Raises:
        FeedrateError: a file that keeps every rule is refused, or a site is not built.
    """
    with tempfile.TemporaryDirectory(dir=place.folder) as folder:
        results = Path(folder) / "results"
        generated.write(results, 2)
        one, other = sorted(results.glob("*/*/trials.parquet"))
        file = Path(folder) / "trials.parquet"
        found = []
        for rows, most_s in ((USUAL, USUAL_S), (MANY, MANY_S)):
            place.say(f"Validating a file of {rows:,} trials ...")
            repeated.write(one, rows, file)
            found.append(of_times(rows, most_s, [validated(file, rows).took_s for _ in range(_TIMES[rows])]))
        found.append(of_memory(validated(file, MANY, memory=True).peak_bytes or 0))
        place.say(f"Comparing a file of {comparing.ROWS:,} trials in the browser ...")
        repeated.write(other, comparing.ROWS, file)
        site = build("two made-up machines", results, Path(folder) / "build").folder
        what, target = f"{_COMPARED}, and {_HELD_UP}", f"≤ {FIRST_MS:,} ms, ≤ {LONGEST_MS} ms"
        return found + with_browser.take(
            SECTION, what, target, lambda chromium: of_compared(comparing.look(site, file, chromium))
        )


def validated(path: Path, rows: int, *, memory: bool = False) -> watched.Ended:
    """Validate a file that keeps every rule.

    Args:
        path: of the file.
        rows: that it has.
        memory: look at it.

    Raises:
        FeedrateError: something is found in it, or not all of it is read.
    """
    ended = watched.harness("validate", str(path), "--json", memory=memory)
    told = json.loads(ended.printed) if ended.printed else {"files": []}
    for file in told["files"]:
        for finding in file["findings"]:
            raise FeedrateError(
                f"bench: {path.name} is not valid: {finding['where']}: {finding['got']}; expected {finding['expected']}"
            )
    if ended.status or [file["rows"] for file in told["files"]] != [rows]:
        raise FeedrateError(f"bench: {path.name} was not read to its end: {ended.complained or ended.printed}")
    return ended


def of_times(rows: int, most_s: float, took_s: Sequence[float]) -> Promise:
    """Hold the validation of a file against what it may take.

    Args:
        rows: of the file.
        most_s: what it may take.
        took_s: what it took, each time.
    """
    middle = statistics.median(took_s)
    return Promise(
        section=SECTION,
        what=f"validating a file of {rows:,} trials {_OF_CELLS}",
        target=f"≤ {most_s:g} s",
        measured=f"{middle:.2f} s ({min(took_s):.2f}–{max(took_s):.2f}, n = {len(took_s)})",
        met=round(middle, 2) <= most_s,
    )


def of_memory(peak_bytes: int) -> Promise:
    """Hold the memory that validating the largest file takes against what it may take.

    Args:
        peak_bytes: of all processes that took part.
    """
    return Promise(
        section=SECTION,
        what=f"memory of all processes that validate a file of {MANY:,} trials {_OF_CELLS}",
        target=f"≤ {MANY_GB} GB",
        measured=f"{peak_bytes / 1e9:.2f} GB at most, at three looks a second (n = 1)",
        met=peak_bytes <= MANY_GB * 1e9,
    )


def of_compared(seen: Sequence[Shown]) -> list[Promise]:
    """Hold comparisons in the browser against what they may take.

    Args:
        seen: some comparisons of one file.
    """
    whole = statistics.median(shown.explained_ms for shown in seen)
    return [
        _quick(_COMPARED, FIRST_MS, [shown.drawn_ms for shown in seen], f"; all of it after {whole:.0f} ms"),
        _quick(f"the page Compare, {_HELD_UP}", LONGEST_MS, [shown.longest_ms for shown in seen]),
    ]


def _quick(what: str, most_ms: float, took_ms: Sequence[float], beside: str = "") -> Promise:
    middle = statistics.median(took_ms)
    measured = f"{middle:.0f} ms ({min(took_ms):.0f}–{max(took_ms):.0f}, n = {len(took_ms)}){beside}"
    return Promise(
        section=SECTION, what=what, target=f"≤ {most_ms:,} ms", measured=measured, met=round(middle) <= most_ms
    )
