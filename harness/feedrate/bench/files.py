"""What files of others cost: to validate one, of usual size and very large, and to compare a large one in the browser.

The files are made up (``generated``) and keep every rule, so all of each is read. Validation is the command that people
type, the start of Python included. The browser has the whole CPU, and a new page each time.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from feedrate.bench import browser, generated, interactive
from feedrate.bench.interactive import ComparedFile
from feedrate.bench.session import Ended, Figure, Session, build_site, judge, run_command
from feedrate.schema.errors import FeedrateError

USUAL, MANY = 500, 1_000_000
"""Trials of the files that are validated."""
USUAL_S, MANY_S, MANY_GB = 2, 15, 1
FIRST_MS, LONGEST_MS = 1000, 100
_TIMES = {USUAL: 5, MANY: 3}
_OF_CELLS = f"of {len(generated.cells('cpu'))} cells"
_COMPARED = f"the page Compare, given a file of {interactive.ROWS:,} trials {_OF_CELLS}: the first picture"
_HELD_UP = "the longest for which it answers nobody, until all of it stands"


def measure(session: Session) -> Iterator[Figure]:
    """Take the figures of files; about two minutes.

    Raises:
        FeedrateError: a file that keeps every rule is refused, or a site is not built.
    """
    with tempfile.TemporaryDirectory(dir=session.folder) as folder:
        results, file = Path(folder) / "results", Path(folder) / "trials.parquet"
        generated.write(results, 2)
        one, other = sorted(results.glob("*/*/trials.parquet"))
        for rows, most_s in ((USUAL, USUAL_S), (MANY, MANY_S)):
            session.console.print(f"Validating a file of {rows:,} trials ...")
            generated.write_repeated(one, rows, file)
            what = f"validating a file of {rows:,} trials {_OF_CELLS}"
            took_s = [validate(file, rows).took_s for _ in range(_TIMES[rows])]
            yield judge(what, f"≤ {most_s:g} s", took_s, digits=2, unit=" s")
        gb = (validate(file, MANY, memory=True).peak_bytes or 0) / 1e9
        yield Figure(
            f"memory of all processes that validate a file of {MANY:,} trials {_OF_CELLS}",
            f"≤ {MANY_GB} GB",
            f"{gb:.2f} GB at most, at three looks a second (n = 1)",
            gb <= MANY_GB,
        )
        session.console.print(f"Comparing a file of {interactive.ROWS:,} trials in the browser ...")
        generated.write_repeated(other, interactive.ROWS, file)
        site = build_site("two made-up machines", results, Path(folder) / "build").folder
        yield from browser.with_browser(
            f"{_COMPARED}, and {_HELD_UP}",
            f"≤ {FIRST_MS:,} ms, ≤ {LONGEST_MS} ms",
            lambda chromium: judge_compared(interactive.compare_files(site, file, chromium)),
        )


def validate(path: Path, rows: int, *, memory: bool = False) -> Ended:
    """Validate a file that keeps every rule.

    Raises:
        FeedrateError: something is found in it, or not all of it is read.
    """
    ended = run_command("validate", str(path), "--json", memory=memory)
    files = json.loads(ended.stdout)["files"] if ended.stdout else []
    for finding in (finding for file in files for finding in file["findings"]):
        raise FeedrateError(
            f"bench: {path.name} is not valid: {finding['where']}: {finding['got']}; expected {finding['expected']}"
        )
    if ended.status or [file["rows"] for file in files] != [rows]:
        raise FeedrateError(f"bench: {path.name} was not read to its end: {ended.stderr or ended.stdout}")
    return ended


def judge_compared(files: Sequence[ComparedFile]) -> Iterator[Figure]:
    """Hold comparisons in the browser against what they may take."""
    first, longest = ([getattr(file, name) for file in files] for name in ("drawn_ms", "longest_ms"))
    all_of_it = f"; all of it after {statistics.median(file.explained_ms for file in files):.0f} ms"
    yield judge(_COMPARED, f"≤ {FIRST_MS:,} ms", first, digits=0, unit=" ms", note=all_of_it)
    yield judge(f"the page Compare, {_HELD_UP}", f"≤ {LONGEST_MS:,} ms", longest, digits=0, unit=" ms")
