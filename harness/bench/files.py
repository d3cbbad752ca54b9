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
from harness.bench.watched import Ended
from harness.bench_record import Promise
from harness.errors import FeedrateError

SECTION = "files"
USUAL_S, LARGE_S, LARGE_GB = 2, 15, 1
FIRST_MS, HELD_UP_MS = 1000, 100
USUAL, MANY = 500, 1_000_000
_TIMES = {"usual": 5, "large": 3}
_COMPARED = f"the page Compare, from choosing a file of {comparing.ROWS:,} trials to the first picture"


def measure(place: Place) -> list[Promise]:
    """Take the figures of files; about two minutes."""
    with tempfile.TemporaryDirectory(dir=place.folder) as folder:
        results = Path(folder) / "results"
        generated.write(results, 2)
        one, other = sorted(results.glob("*/*/trials.parquet"))
        file = Path(folder) / "trials.parquet"
        place.say(f"Validating files of {USUAL:,} and {MANY:,} trials ...")
        repeated.write(one, USUAL, file)
        found = of_usual([validated(file) for _ in range(_TIMES["usual"])])
        repeated.write(one, MANY, file)
        found += of_large([validated(file) for _ in range(_TIMES["large"])])
        place.say(f"Comparing a file of {comparing.ROWS:,} trials in the browser ...")
        repeated.write(other, comparing.ROWS, file)
        target = f"≤ {FIRST_MS:,} ms"
        return found + with_browser.take(SECTION, _COMPARED, target, lambda where: _compared(file, results, where))


def validated(path: Path) -> Ended:
    """Validate a file that keeps every rule.

    Raises:
        FeedrateError: it is refused.
    """
    ended = watched.harness("validate", str(path), "--json")
    if ended.status or json.loads(ended.printed)["refused"]:
        raise FeedrateError(f"bench: {path.name} was refused: {ended.complained or ended.printed[:200]}")
    return ended


def _compared(file: Path, results: Path, chromium: str) -> list[Promise]:
    """Compare a file in the browser with the run of the other machine, on the site of both."""
    built = build("two made-up machines", results, file.parent / "build")
    return of_compared(comparing.look(built.folder, file, chromium))


def of_usual(seen: Sequence[Ended]) -> list[Promise]:
    """Hold the validation of a run as people have it against what it may take.

    Args:
        seen: some validations.
    """
    return [_quick(f"validating a file of {USUAL:,} trials", USUAL_S, [ended.took_s for ended in seen], "s")]


def of_large(seen: Sequence[Ended]) -> list[Promise]:
    """Hold the validation of a very large file against what it may take.

    Args:
        seen: some validations.
    """
    what = f"validating a file of {MANY:,} trials"
    peak = max(ended.peak_bytes for ended in seen) / 1e9
    memory = f"{peak:.2f} GB at most (n = {len(seen)})"
    return [
        _quick(what, LARGE_S, [ended.took_s for ended in seen], "s"),
        Promise(
            section=SECTION,
            what=f"memory of all processes that take part in {what}",
            target=f"≤ {LARGE_GB} GB",
            measured=memory,
            met=peak <= LARGE_GB,
        ),
    ]


def of_compared(seen: Sequence[Shown]) -> list[Promise]:
    """Hold comparisons in the browser against what they may take.

    Args:
        seen: some comparisons of one file.
    """
    return [
        _quick(_COMPARED, FIRST_MS, [shown.drawn_ms for shown in seen], "ms"),
        _quick(
            "the longest for which the page Compare answers nobody meanwhile",
            HELD_UP_MS,
            [shown.longest_ms for shown in seen],
            "ms",
        ),
    ]


def _quick(what: str, most: float, took: Sequence[float], unit: str) -> Promise:
    middle, digits = statistics.median(took), 1 if unit == "s" else 0
    low, high = (f"{value:.{digits}f}" for value in (min(took), max(took)))
    measured = f"{middle:.{digits}f} {unit} ({low}–{high}, n = {len(took)})"
    return Promise(section=SECTION, what=what, target=f"≤ {most:,} {unit}", measured=measured, met=middle <= most)
