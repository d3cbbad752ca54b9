"""What the website costs: to build, for few results and for very many, and to read, on a slow phone.

Many results are made up (``generated``): 1, 100 and 10,000 machines with a run each, the last a million rows of trials.
Home, claims and suites are pages of pictures, which must be light and quick. Explore is a tool: it loads all that draws
at once, and what counts there is how long a change takes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from feedrate.bench import browser, generated, interactive
from feedrate.bench.browser import PageCost
from feedrate.bench.session import BuiltSite, Figure, Session, build_site, judge
from feedrate.pages.runs import load_runs
from feedrate.pages.selection import select
from feedrate.schema.words import plural
from feedrate.store import runs

MACHINES = (1, 100, 10_000)
FEW_S, MANY_S, PEAK_GB = 20, 120, 2
BEFORE_KB, AFTER_KB, SHARD_KB = 150, 500, 1000
PAINT_MS, BLOCKED_MS, CHANGE_MS = 1000, 300, 200
_PAGES = ("index.html", "claims.html", "suites/*.html")
"""What a reader opens first; pages that are not there are not asked about."""
_SLOW = f"on a CPU slowed to 1/{browser.SLOWER}"
_CHANGE = f"Explore, from changing a filter to the new picture, {interactive.CELLS:,} cells"


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
        built = build_site(what, results, Path(folder) / "build")
        yield from judge_build(built, most_s)
        session.console.print(f"Opening its pages {_SLOW} ...")
        yield from browser.with_browser(
            f"pages in a browser: {what}", "open and draw", lambda chromium: _look(built, chromium)
        )
        if crowded:
            session.console.print(f"Changing a filter in Explore among {interactive.CELLS:,} cells ...")
            yield from browser.with_browser(
                _CHANGE, f"≤ {CHANGE_MS} ms", lambda chromium: [_filter(built, results, Path(folder), chromium)]
            )


def judge_build(built: BuiltSite, most_s: float) -> Iterator[Figure]:
    """Hold a build, and the files that Explore reads of it where there are any, against what they may take."""
    gb = built.peak_bytes / 1e9
    yield Figure(
        f"building the site: {built.what}", f"≤ {most_s:g} s", f"{built.took_s:.1f} s (n = 1)", built.took_s <= most_s
    )
    yield Figure(
        f"memory of all processes that build it: {built.what}",
        f"≤ {PEAK_GB} GB",
        f"{gb:.2f} GB at most (n = 1)",
        gb <= PEAK_GB,
    )
    if sizes := [path.stat().st_size / 1000 for path in (built.folder / "explore").glob("*.json")]:
        yield Figure(
            f"largest file that Explore reads, not compressed: {built.what}",
            f"≤ {SHARD_KB:,} kB",
            f"{max(sizes):,.0f} kB (n = {len(sizes)} files)",
            max(sizes) <= SHARD_KB,
        )


def _look(built: BuiltSite, chromium: str) -> list[Figure]:
    paths = [path.relative_to(built.folder).as_posix() for each in _PAGES for path in sorted(built.folder.glob(each))]
    *costs, explore = browser.page_costs(built.folder, [*paths, interactive.EXPLORE], chromium)
    return [*judge_pages(costs, built.what), judge_explore(explore, built.what)]


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


def judge_explore(cost: PageCost, what: str) -> Figure:
    """Hold the first paint of Explore against what pages may take; its weight is told and not judged."""
    weight = f"; {cost.before_bytes / 1000:.0f} kB, compressed, with its numbers and what draws them"
    what = f"Explore, first contentful paint {_SLOW}: {what}"
    return judge(what, f"≤ {PAINT_MS:,} ms", cost.paints_ms, digits=0, unit=" ms", counted="load", note=weight)


def _filter(built: BuiltSite, results: Path, folder: Path, chromium: str) -> Figure:
    """Hold a change of a filter in Explore against what it may take."""
    crowd = interactive.crowd(select(load_runs(results)))
    site = interactive.with_explore(built.folder, crowd, folder / "crowd")
    drawn_ms, cpu_ms = interactive.filter_explore(site, chromium)
    note = f", {cpu_ms:.0f} ms of it CPU time of the page"
    return judge(_CHANGE, f"≤ {CHANGE_MS} ms", drawn_ms, digits=0, unit=" ms", counted="change", note=note)
