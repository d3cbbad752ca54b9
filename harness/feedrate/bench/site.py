"""What the website and files of others cost: to validate a file, to build a site, and to read it on a slow phone.

Results are made up (``generated``): files of a usual size and very large ones; 1, 100 and 10,000 machines with a run
each, the last a million rows of trials. They keep every rule, so all of each is read. Commands are those that people
type, the start of Python included. Home, claims and suites are pages of pictures, which must be light and quick.
Explore is a tool: what counts there is how long a change takes.

Of a store of a million runs it has the rows of all, and the folders of the newest alone.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psutil

from feedrate.bench import browser, generated
from feedrate.bench.browser import PageCost
from feedrate.bench.session import Figure, Session, judge
from feedrate.pages.runs import load_runs
from feedrate.pages.selection import select
from feedrate.schema.errors import FeedrateError
from feedrate.schema.words import plural
from feedrate.store import runs

VALIDATED = {500: (2, 5), 1_000_000: (15, 3)}
"""Trials of the files that are validated → seconds that this may take, and how often it is done."""
MACHINES = (1, 100, 10_000)
FEW_S, MANY_S, PEAK_GB = 20, 120, 2
SUMMED_UP, NEW, ADD_S, ADD_GB = 1_000_000, 1_000, 60, 1.2
"""Runs of a store with a compact data set, and how many are then added; what that may take."""
_HEAVY = 6
"""Pages of its site that are weighed: those whose HTML is largest."""
BEFORE_KB, AFTER_KB = 150, 500
PAINT_MS, BLOCKED_MS, CHANGE_MS = 1000, 300, 200
_PAGES = ("index.html", "claims.html", "suites/*.html")
"""What a reader opens first; pages that are not there are not asked about."""
_SLOW = f"on a CPU slowed to 1/{browser.SLOWER}"
_CHANGE = f"Explore, from changing a filter to the new picture, {browser.CELLS:,} cells"


def measure_files(session: Session) -> Iterator[Figure]:
    """Validate files that others may send; about a minute and a half."""
    of_cells = f"of {len(generated.cells('cpu'))} cells"
    with tempfile.TemporaryDirectory(dir=session.folder) as folder:
        results, file = Path(folder) / "results", Path(folder) / "trials.parquet"
        generated.write(results, 1)
        (one,) = results.glob("*/*/trials.parquet")
        for rows, (most_s, times) in VALIDATED.items():
            session.console.print(f"Validating a file of {rows:,} trials ...")
            generated.write_repeated(one, rows, file)
            took_s = [validate(file, rows).took_s for _ in range(times)]
            yield judge(
                f"validating a file of {rows:,} trials {of_cells}", f"≤ {most_s:g} s", took_s, digits=2, unit=" s"
            )
        gb = (validate(file, rows, memory=True).peak_bytes or 0) / 1e9
        what = f"memory of all processes that validate a file of {rows:,} trials {of_cells}"
        yield Figure(what, "≤ 1 GB", f"{gb:.2f} GB at most, at three looks a second (n = 1)", gb <= 1)


def validate(path: Path, rows: int, *, memory: bool = False) -> Ended:
    """Validate a file that keeps every rule; one that is refused, or not read to its end, is an error."""
    ended = run_command("validate", str(path), "--json", memory=memory)
    files = json.loads(ended.stdout)["files"] if ended.stdout else []
    for finding in (finding for file in files for finding in file["findings"]):
        raise FeedrateError(
            f"bench: {path.name} is not valid: {finding['where']}: {finding['got']}; expected {finding['expected']}"
        )
    if ended.status or [file["rows"] for file in files] != [rows]:
        raise FeedrateError(f"bench: {path.name} was not read to its end: {ended.stderr or ended.stdout}")
    return ended


def measure(session: Session) -> Iterator[Figure]:
    """Take the figures of the website; about ten minutes, almost half of them for ten thousand machines."""
    if count := len(runs.runs(session.results)):
        yield from _figures(session, plural(count, "measured run"), session.results, FEW_S)
    for machines in MACHINES:
        session.console.print(f"Making up results of {plural(machines, 'machine')} ...")
        with tempfile.TemporaryDirectory(dir=session.folder) as folder:
            results = Path(folder) / "results"
            rows = generated.write(results, machines)
            what = f"{plural(machines, 'made-up machine')}, {rows:,} trials"
            few = machines == 1
            yield from _figures(session, what, results, FEW_S if few else MANY_S, crowded=few)


def _figures(session: Session, what: str, results: Path, most_s: float, *, crowded: bool = False) -> Iterator[Figure]:
    """Build a site, look at it, if wanted also at its Explore with very many cells, and throw it away."""
    with tempfile.TemporaryDirectory(dir=session.folder) as folder:
        session.console.print(f"Building the site of {what} ...")
        yield from judge_build(what, build_site(results, Path(folder)), most_s)
        site = Path(folder) / "site"
        paths = [path.relative_to(site).as_posix() for each in _PAGES for path in sorted(site.glob(each))]
        session.console.print(f"Opening its pages {_SLOW} ...")
        yield from browser.with_browser(
            f"pages in a browser: {what}",
            "open and draw",
            lambda chromium: judge_pages(browser.page_costs(site, paths, chromium), what),
        )
        if crowded:
            session.console.print(f"Changing a filter in Explore among {browser.CELLS:,} cells ...")
            bound = f"≤ {CHANGE_MS} ms"

            def change(chromium: str) -> Iterator[Figure]:
                crowd = browser.crowd(select(load_runs(results)))
                drawn_ms = browser.filter_explore(browser.with_explore(site, crowd, Path(folder) / "crowd"), chromium)
                yield judge(_CHANGE, bound, drawn_ms, digits=0, unit=" ms", counted="change")

            yield from browser.with_browser(_CHANGE, bound, change)


def measure_store(session: Session) -> Iterator[Figure]:
    """Add runs to a store of very many and build its site; most of the time goes into making up the store."""
    with tempfile.TemporaryDirectory(dir=session.folder) as folder:
        results, what = Path(folder) / "results", f"{NEW:,} made-up runs to a store of {SUMMED_UP:,}"
        session.console.print(f"Making up a store of {SUMMED_UP:,} runs ...")
        generated.write_compact(results, SUMMED_UP - NEW)
        generated.write(results, NEW)
        append(results, NEW)
        generated.write(results, NEW, first=NEW)
        session.console.print(f"Adding {what} ...")
        yield from _judge_ended("adding", what, append(results, NEW), ADD_S, ADD_GB)
        what = f"a store of {SUMMED_UP + NEW:,} runs"
        session.console.print(f"Building the site of {what} ...")
        yield from judge_build(what, build_site(results, Path(folder)), MANY_S)
        site = Path(folder) / "site"
        session.console.print("Weighing its heaviest pages ...")
        pages = sorted(site.rglob("*.html"), key=lambda path: len(gzip.compress(path.read_bytes(), 6)))
        paths = [path.relative_to(site).as_posix() for path in pages[-_HEAVY:]]
        yield from browser.with_browser(
            f"pages in a browser: {what}",
            f"≤ {BEFORE_KB} kB",
            lambda chromium: islice(judge_pages(browser.weights(site, paths, chromium), what), 1),
        )


def append(results: Path, new: int) -> Ended:
    """Add so many runs that are new to a store's compact data set, by the command that people type."""
    ended = run_command("compact", "--results", str(results.resolve()), memory=True)
    if ended.status or f"{new:,} runs are new, 0 were refused" not in ended.stdout:
        raise FeedrateError(f"bench: {new:,} runs were not added: {ended.stderr or ended.stdout}")
    return ended


def judge_build(what: str, built: Ended, most_s: float) -> Iterator[Figure]:
    """Hold a build against what it may take."""
    return _judge_ended("building the site:", what, built, most_s, PEAK_GB)


def _judge_ended(doing: str, what: str, ended: Ended, most_s: float, most_gb: float) -> Iterator[Figure]:
    took, gb = f"{ended.took_s:.1f} s (n = 1)", (ended.peak_bytes or 0) / 1e9
    yield Figure(f"{doing} {what}", f"≤ {most_s:g} s", took, ended.took_s <= most_s)
    memory = f"memory of all processes while {doing} {what}"
    yield Figure(memory, f"≤ {most_gb:g} GB", f"{gb:.2f} GB at most (n = 1)", gb <= most_gb)


def judge_pages(costs: Sequence[PageCost], what: str) -> Iterator[Figure]:
    """Hold what pages cost against the targets: the worst page decides."""
    for when, most_kb, kb in (
        ("before", BEFORE_KB, {cost.path: cost.before_bytes / 1000 for cost in costs}),
        ("after", AFTER_KB, {cost.path: cost.after_bytes / 1000 for cost in costs}),
    ):
        path, most = max(kb.items(), key=lambda pair: pair[1])
        yield Figure(
            f"heaviest page {when} a chart is touched, compressed: {what}",
            f"≤ {most_kb:,} kB",
            f"{most:.0f} kB ({path}; lightest {min(kb.values()):.0f} kB, n = {plural(len(kb), 'page')})",
            most <= most_kb,
        )
    blocking = "total blocking time (of tasks, beyond 50 ms, after the first paint)"
    for what_ms, most_ms, loads_ms in (
        (f"first contentful paint {_SLOW}, slowest", PAINT_MS, {cost.path: cost.paints_ms for cost in costs}),
        (f"{blocking} {_SLOW}, worst", BLOCKED_MS, {cost.path: cost.blocks_ms for cost in costs}),
    ):
        medians = {path: statistics.median(loads) for path, loads in loads_ms.items()}
        path = max(medians, key=lambda path: medians[path])
        others = f"; best page {min(medians.values()):.0f} ms, {plural(len(medians), 'page')}" if len(costs) > 1 else ""
        yield judge(
            f"{what_ms} page: {what}",
            f"≤ {most_ms:,} ms",
            loads_ms[path],
            digits=0,
            unit=" ms",
            counted="load",
            note=f" of {path}{others}",
        )


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    took_s: float
    """With the start of Python."""
    peak_bytes: int | None
    """Most memory of the command and all processes below it, at three looks a second; a page that several share
    counts once. None: nobody looked."""
    stdout: str
    stderr: str


def run_command(*arguments: str, memory: bool = False) -> Ended:
    """Run a command of feedrate and watch it to its end; an interrupt ends it and all that it started."""
    command = [sys.executable, "-P", "-m", "feedrate", *arguments]
    # Its output goes to files: a pipe that nobody reads meanwhile would stop a command that says much.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.perf_counter()
        with subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True) as running:
            try:
                peak = peak_bytes(running) if memory else None
                running.wait()
            finally:
                if running.poll() is None:
                    os.killpg(running.pid, signal.SIGKILL)
        took_s = time.perf_counter() - begun
        texts = [os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace").strip() for file in (out, err)]
        return Ended(running.returncode, took_s, peak, *texts)


def peak_bytes(running: subprocess.Popen[bytes]) -> int:
    """Watch the memory of a process and of all below it until it ends."""
    process, peak = psutil.Process(running.pid), 0
    while running.poll() is None:
        held = 0
        with suppress(psutil.Error):  # each of them may end meanwhile
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    held += each.memory_full_info().pss
        peak = max(peak, held)
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.3)  # the kernel walks all pages of a process for one look
    return peak


def build_site(results: Path, out: Path) -> Ended:
    """Build ``out/site`` by the command that people type, and watch it to its end."""
    ended = run_command("site", "--results", str(results.resolve()), "--out", str(out), memory=True)
    if ended.status:
        raise FeedrateError(f"bench: the site was not built: {ended.stderr or ended.status}")
    return ended
