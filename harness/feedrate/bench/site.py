"""What the website costs: to build it, and to read it on a slow phone.

Results are those that were measured, and made-up ones (``generated``): 1, 100 and 10,000 machines with a run each, the
last a million rows of trials. They keep every rule, so all of each is read. Commands are those that people type, the
start of Python included. Home, claims and suites are pages of pictures, which must be light and quick. Explore is a
tool: what counts there is how long a change takes.

Of a store of a million runs it has the rows of all, and the folders of the newest alone.
"""

from __future__ import annotations

import gzip
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from feedrate.bench import browser, generated
from feedrate.bench.browser import PageCost
from feedrate.bench.session import Ended, Figure, Session, judge, run_command
from feedrate.schema.errors import FeedrateError
from feedrate.schema.words import plural
from feedrate.store import runs

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
            yield from _figures(session, what, results, FEW_S if machines == 1 else MANY_S)


def _figures(session: Session, what: str, results: Path, most_s: float) -> Iterator[Figure]:
    """Build a site, open its pages, and throw it away."""
    with tempfile.TemporaryDirectory(dir=session.folder) as folder:
        session.console.print(f"Building the site of {what} ...")
        yield from judge_build(what, build_site(results, Path(folder)), most_s)
        site = Path(folder) / "site"
        paths = [path.relative_to(site).as_posix() for each in _PAGES for path in sorted(site.glob(each))]
        session.console.print(f"Opening its pages {_SLOW} ...")

        def look(chromium: str) -> Iterator[Figure]:
            yield from judge_pages(browser.page_costs(site, paths, chromium), what)
            drawn_ms, change = (
                browser.filter_explore(site, chromium),
                "Explore, from changing a filter to the new picture",
            )
            yield judge(f"{change}: {what}", f"≤ {CHANGE_MS} ms", drawn_ms, digits=0, unit=" ms", counted="change")

        yield from browser.with_browser(f"pages in a browser: {what}", "open and draw", look)


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
            lambda chromium: islice(judge_pages(browser.page_costs(site, paths, chromium, loads=0), what), 1),
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


def build_site(results: Path, out: Path) -> Ended:
    """Build ``out/site`` by the command that people type, and watch it to its end."""
    ended = run_command("site", "--results", str(results.resolve()), "--out", str(out), memory=True)
    if ended.status:
        raise FeedrateError(f"bench: the site was not built: {ended.stderr or ended.status}")
    return ended
