"""What the website costs: to build, for few results and for very many, and to read, on a slow phone.

Many results are made up (``generated``): 1, 100 and 10,000 machines with a run each, the last a million rows of trials.
Times of a build are those of ``make site`` as people type it, the start of Python included.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness import store
from harness.bench import browsed, generated
from harness.bench.browsed import Cost
from harness.bench.place import Place
from harness.bench_record import Promise
from harness.errors import FeedrateError
from harness.registry import ROOT

SECTION = "site"
MACHINES = (1, 100, 10_000)
FEW_S, MANY_S, PEAK_GB = 20, 120, 2
BEFORE_KB, AFTER_KB, SHARD_KB = 150, 500, 1000
PAINT_MS, BLOCKED_MS = 1000, 300
_PAGES = ("index.html", "claims.html", "explore.html", "suites/*.html")
"""What a reader opens first; pages that are not there are not asked about."""
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Built:
    """A site, and what building it took."""

    what: str
    """Whose results: ``the results here``, ``100 machines``."""
    folder: Path
    took_s: float
    peak_bytes: int
    """Resident memory of the build and all of its processes, at most."""
    most_s: float
    """Target."""


def measure(place: Place) -> list[Promise]:
    """Take the figures of the website; about six minutes, half of them ten thousand machines."""
    found: list[Promise] = []
    if store.runs(place.results):
        place.say("Building the site of the results here ...")
        found += _figures(_build(place, "the results here", place.results, FEW_S))
    for machines in MACHINES:
        place.say(f"Making up results of {machines:,} machines and building their site ...")
        results = place.folder / f"results-{machines}"
        rows = generated.write(results, machines)
        what = f"{machines:,} {'machine' if machines == 1 else 'machines'}, {rows:,} trials, made up"
        found += _figures(_build(place, what, results, FEW_S if machines == 1 else MANY_S))
    return found


def _promise(what: str, target: str, measured: str, *, met: bool | None) -> Promise:
    return Promise(section=SECTION, what=what, target=target, measured=measured, met=met)


def _build(place: Place, what: str, results: Path, most_s: float) -> Built:
    out = place.folder / f"site-{len(list(place.folder.glob('site-*')))}"
    command = [sys.executable, "-m", "harness", "site", "--results", str(results.resolve()), "--out", str(out)]
    begun = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as building:
        peak = _peak(building)
        took = time.perf_counter() - begun
        told = building.stderr.read() if building.stderr else ""
    if building.returncode:
        raise FeedrateError(f"bench: the site of {what} was not built: {told.strip() or building.returncode}")
    return Built(what, out / "site", took, peak, most_s)


def _peak(building: subprocess.Popen[str]) -> int:
    """Watch a process and its children until it ends; pages that they share count once for each."""
    process, peak = psutil.Process(building.pid), 0
    while building.poll() is None:
        now = 0
        with suppress(psutil.Error):
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    now += each.memory_info().rss
        peak = max(peak, now)
        time.sleep(_LOOK_S)
    return peak


def _figures(built: Built) -> list[Promise]:
    return [*_of_build(built), *_of_shards(built), *_of_pages(built)]


def _of_build(built: Built) -> list[Promise]:
    gb = built.peak_bytes / 1e9
    return [
        _promise(
            f"site build, {built.what}",
            f"≤ {built.most_s:g} s",
            f"{built.took_s:.1f} s (n = 1)",
            met=built.took_s <= built.most_s,
        ),
        _promise(
            f"memory of all its processes, {built.what}",
            f"≤ {PEAK_GB} GB",
            f"{gb:.2f} GB at most (n = 1)",
            met=gb <= PEAK_GB,
        ),
    ]


def _of_shards(built: Built) -> list[Promise]:
    sizes = [path.stat().st_size / 1000 for path in sorted((built.folder / "explore").glob("*.json"))]
    if not sizes:
        return []
    return [
        _promise(
            f"largest file of cells, {built.what}",
            f"≤ {SHARD_KB:,} kB",
            f"{max(sizes):,.0f} kB (n = {len(sizes)} files)",
            met=max(sizes) <= SHARD_KB,
        )
    ]


def _of_pages(built: Built) -> list[Promise]:
    executable = browsed.browser_path()
    if executable is None:
        return [_promise(f"pages in a browser, {built.what}", "as light as promised", browsed.MISSING, met=None)]
    paths = [path.relative_to(built.folder).as_posix() for each in _PAGES for path in sorted(built.folder.glob(each))]
    return judged(browsed.costs(built.folder, paths, executable), built.what)


def judged(costs: Sequence[Cost], what: str) -> list[Promise]:
    """Hold what pages cost against the targets: the worst page decides.

    Args:
        costs: a page each.
        what: whose site.
    """
    slow = f"at 1/{browsed.SLOWER} of the CPU"
    return [
        _worst(f"page before a chart is touched, compressed, {what}", BEFORE_KB, "kB", _kb(costs, "before_bytes")),
        _worst(f"the same after, {what}", AFTER_KB, "kB", _kb(costs, "after_bytes")),
        _worst(f"first contentful paint {slow}, {what}", PAINT_MS, "ms", [(c.path, c.paint_ms) for c in costs]),
        _worst(f"time blocked after it {slow}, {what}", BLOCKED_MS, "ms", [(c.path, c.blocked_ms) for c in costs]),
    ]


def _kb(costs: Iterable[Cost], name: str) -> list[tuple[str, float]]:
    return [(cost.path, getattr(cost, name) / 1000) for cost in costs]


def _worst(what: str, most: float, unit: str, values: Sequence[tuple[str, float]]) -> Promise:
    path, worst = max(values, key=lambda pair: pair[1])
    said = (
        f"{worst:.0f} {unit} at worst ({path}; least {min(value for _, value in values):.0f}, n = {len(values)} pages)"
    )
    return _promise(what, f"≤ {most:,} {unit}", said, met=worst <= most)
