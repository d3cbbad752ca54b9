"""What the website costs: to build, for few results and for very many, and to read, on a slow phone.

Many results are made up (``generated``): 1, 100 and 10,000 machines with a run each, the last a million rows of trials.
Home, claims and suites are pages of pictures, which must be light and quick. Explore is a tool: it loads all that draws
at once, and what counts there is how long a change takes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness import store
from harness.bench import browsed, exploring, generated, with_browser
from harness.bench.browsed import Cost
from harness.bench.building import Built, build
from harness.bench.exploring import Changes, crowd
from harness.bench.place import Place
from harness.bench_record import Promise
from harness.charts._words import plural
from harness.pages.featured import cast
from harness.pages.gathered import gather

SECTION = "site"
MACHINES = (1, 100, 10_000)
FEW_S, MANY_S, PEAK_GB = 20, 120, 2
BEFORE_KB, AFTER_KB, SHARD_KB = 150, 500, 1000
PAINT_MS, BLOCKED_MS, CHANGE_MS = 1000, 300, 200
_PAGES = ("index.html", "claims.html", "suites/*.html")
"""What a reader opens first; pages that are not there are not asked about."""
_SLOW = f"on a CPU slowed to 1/{browsed.SLOWER}"
_CHANGE = f"Explore, from changing a filter to the new picture, {exploring.CELLS:,} cells"


def measure(place: Place) -> list[Promise]:
    """Take the figures of the website; about ten minutes, almost half of them for ten thousand machines."""
    found: list[Promise] = []
    if runs := len(store.runs(place.results)):
        found += _figures(place, plural(runs, "measured run"), place.results, FEW_S)
    for machines in MACHINES:
        place.say(f"Making up results of {plural(machines, 'machine')} ...")
        with tempfile.TemporaryDirectory(dir=place.folder) as folder:
            results = Path(folder) / "results"
            rows = generated.write(results, machines)
            what = f"{plural(machines, 'made-up machine')}, {rows:,} trials"
            few = machines == 1
            found += _figures(place, what, results, FEW_S if few else MANY_S, crowded=few)
    return found


def _figures(place: Place, what: str, results: Path, most_s: float, *, crowded: bool = False) -> list[Promise]:
    """Build a site, look at it, if wanted also at its Explore with very many cells, and throw it away."""
    with tempfile.TemporaryDirectory(dir=place.folder) as folder:
        place.say(f"Building the site of {what} ...")
        built = build(what, results, Path(folder) / "build")
        found = [*of_build(built, most_s), *of_shards(built)]
        place.say(f"Opening its pages {_SLOW} ...")
        pages = f"pages in a browser: {what}"
        found += with_browser.take(SECTION, pages, "open and draw", lambda chromium: _of_pages(built, chromium))
        if crowded:
            place.say(f"Changing a filter in Explore among {exploring.CELLS:,} cells ...")
            many, target = Path(folder) / "crowd", f"≤ {CHANGE_MS} ms"
            found += with_browser.take(
                SECTION, _CHANGE, target, lambda chromium: [_of_crowd(built, results, many, chromium)]
            )
        return found


def _promise(what: str, target: str, measured: str, *, met: bool | None) -> Promise:
    return Promise(section=SECTION, what=what, target=target, measured=measured, met=met)


def of_build(built: Built, most_s: float) -> list[Promise]:
    """Hold a build against what it may take.

    Args:
        built: a site.
        most_s: what building it may take.
    """
    gb = built.peak_bytes / 1e9
    return [
        _promise(
            f"building the site: {built.what}",
            f"≤ {most_s:g} s",
            f"{built.took_s:.1f} s (n = 1)",
            met=built.took_s <= most_s,
        ),
        _promise(
            f"memory of all processes that build it: {built.what}",
            f"≤ {PEAK_GB} GB",
            f"{gb:.2f} GB at most (n = 1)",
            met=gb <= PEAK_GB,
        ),
    ]


def of_shards(built: Built) -> list[Promise]:
    """Hold the files that Explore reads against what one may weigh; nothing where there are none.

    Args:
        built: a site.
    """
    sizes = [path.stat().st_size / 1000 for path in sorted((built.folder / "explore").glob("*.json"))]
    if not sizes:
        return []
    return [
        _promise(
            f"largest file that Explore reads, not compressed: {built.what}",
            f"≤ {SHARD_KB:,} kB",
            f"{max(sizes):,.0f} kB (n = {len(sizes)} files)",
            met=max(sizes) <= SHARD_KB,
        )
    ]


def _of_pages(built: Built, chromium: str) -> list[Promise]:
    paths = [path.relative_to(built.folder).as_posix() for each in _PAGES for path in sorted(built.folder.glob(each))]
    *costs, explored = browsed.costs(built.folder, [*paths, exploring.PAGE], chromium)
    return [*judged(costs, built.what), of_explore(explored, built.what)]


def judged(costs: Sequence[Cost], what: str) -> list[Promise]:
    """Hold what pages cost against the targets: the worst page decides.

    Args:
        costs: a page each.
        what: whose site.
    """
    befores = {cost.path: cost.before_bytes / 1000 for cost in costs}
    afters = {cost.path: cost.after_bytes / 1000 for cost in costs}
    return [
        _heaviest(f"heaviest page before a chart is touched, compressed: {what}", BEFORE_KB, befores),
        _heaviest(f"heaviest page after a chart is touched, compressed: {what}", AFTER_KB, afters),
        _slowest(
            f"first contentful paint {_SLOW}, slowest page: {what}",
            PAINT_MS,
            {cost.path: cost.paints_ms for cost in costs},
        ),
        _slowest(
            f"total blocking time (of tasks, beyond 50 ms, after the first paint) {_SLOW}, worst page: {what}",
            BLOCKED_MS,
            {cost.path: cost.blocks_ms for cost in costs},
        ),
    ]


def _heaviest(what: str, most: float, kb: dict[str, float]) -> Promise:
    path = max(kb, key=kb.__getitem__)
    said = f"{kb[path]:.0f} kB ({path}; lightest {min(kb.values()):.0f} kB, n = {plural(len(kb), 'page')})"
    return _promise(what, f"≤ {most:,} kB", said, met=kb[path] <= most)


def _slowest(what: str, most: float, ms: dict[str, tuple[float, ...]]) -> Promise:
    medians = {path: statistics.median(loads) for path, loads in ms.items()}
    path = max(medians, key=medians.__getitem__)
    others = f"; best page {min(medians.values()):.0f} ms, {plural(len(ms), 'page')}" if len(ms) > 1 else ""
    return _promise(what, f"≤ {most:,} ms", f"{_median(ms[path], 'load')} of {path}{others}", met=medians[path] <= most)


def _median(ms: Sequence[float], each: str) -> str:
    return f"{statistics.median(ms):.0f} ms ({min(ms):.0f}–{max(ms):.0f}, n = {plural(len(ms), each)})"


def of_explore(cost: Cost, what: str) -> Promise:
    """Hold the first paint of Explore against what pages may take; its weight is told and not judged.

    Args:
        cost: of Explore.
        what: whose site.
    """
    kb = cost.before_bytes / 1000
    return _promise(
        f"Explore, first contentful paint {_SLOW}: {what}",
        f"≤ {PAINT_MS:,} ms",
        f"{_median(cost.paints_ms, 'load')}; {kb:.0f} kB, compressed, with its numbers and what draws them",
        met=cost.paint_ms <= PAINT_MS,
    )


def _of_crowd(built: Built, results: Path, folder: Path, chromium: str) -> Promise:
    return of_changes(exploring.look(exploring.anew(built.folder, crowd(cast(gather(results))), folder), chromium))


def of_changes(seen: Changes) -> Promise:
    """Hold a change of a filter in Explore against what it may take.

    Args:
        seen: some changes.
    """
    middle = statistics.median(seen.drawn_ms)
    return _promise(
        _CHANGE,
        f"≤ {CHANGE_MS} ms",
        f"{_median(seen.drawn_ms, 'change')}, {seen.cpu_ms:.0f} ms of it CPU time of the page",
        met=middle <= CHANGE_MS,
    )
