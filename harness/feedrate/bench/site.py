"""What the website of all runs costs: to build it, and to read it on a slow phone.

The build is the command that people type, the start of Python included. Of its pages home, claims and suites are
opened, which must be light and quick.

Chromium runs without a window on this machine, the main thread of its pages slowed down as on a phone; the network is
this machine's own and costs nothing, so the times are those of parsing, laying out and running scripts. Bytes are those
of every answer, compressed as web servers do it (gzip, level 6); what is compressed already counts as it is.
"""

from __future__ import annotations

import gzip
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from feedrate.bench.session import Ended, Figure, Session, judge_median, run_command
from feedrate.schema.errors import EnvironmentFault, FeedrateError
from feedrate.schema.words import plural
from feedrate.site.serve import served
from feedrate.store import runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

BUILD_S, PEAK_GB = 10, 2
BEFORE_KB, AFTER_KB = 120, 500
PAINT_MS, BLOCKED_MS = 500, 200
SLOWER, LOADS = 4, 5
"""By how much the main thread of a page is slowed down, and slow loads of a page, each with an empty cache."""
MISSING = "needs Chromium; type: sudo apt-get install chromium"
_PAGES = ("index.html", "claims.html", "suites/*.html")
"""What a reader opens first; pages that are not there are not asked about."""
_WIDE, _PHONE = 1280, 360
"""Widths of a page in pixels: where bytes are counted, and where times are taken."""
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_COMPRESSED = (".png", ".jpg", ".gz", ".woff2", ".pdf", ".parquet")
_QUIET_MS, _MOST_MS = 500, 30_000
"""A page rests when it has asked for nothing for so long; one that never does has failed."""
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


class PageCost(NamedTuple):
    """What one page costs."""

    path: str
    before_bytes: int
    """Of all answers until the page rests, compressed."""
    after_bytes: int
    """Likewise, after its first chart was touched; the same where it has none."""
    paints_ms: tuple[float, ...]
    """First contentful paint of each slow load."""
    blocks_ms: tuple[float, ...]
    """Total blocking time of each slow load: what tasks after the first paint took beyond 50 ms each."""


def measure(session: Session) -> Iterator[Figure]:
    """Build the site of all runs, open its pages, and throw it away; some minutes."""
    what = plural(len(runs.runs(session.results)), "measured run")
    with tempfile.TemporaryDirectory(dir=session.folder) as folder:
        session.console.print(f"Building the site of {what} ...")
        yield from judge_build(what, build_site(session.results, Path(folder)))
        site = Path(folder) / "site"
        paths = [path.relative_to(site).as_posix() for pattern in _PAGES for path in sorted(site.glob(pattern))]
        if (executable := browser_path()) is None:
            yield Figure(f"pages in a browser: {what}", "open and draw", MISSING, None)
            return
        session.console.print(f"Opening its pages on a CPU slowed to 1/{SLOWER} ...")
        with chromium(executable, site) as (browser, origin):
            yield from judge_pages([page_cost(browser, origin, path) for path in paths], what)


def build_site(results: Path, out: Path) -> Ended:
    """Build ``out/site`` by the command that people type, and watch it to its end."""
    ended = run_command("site", "--results", str(results.resolve()), "--out", str(out), memory=True)
    if ended.status:
        raise FeedrateError(f"bench: the site was not built: {ended.stderr or ended.status}")
    return ended


def judge_build(what: str, built: Ended) -> Iterator[Figure]:
    """Hold a build against what it may take."""
    gb, took = (built.peak_bytes or 0) / 1e9, f"{built.took_s:.1f} s (n = 1)"
    yield Figure(f"building the site: {what}", f"≤ {BUILD_S} s", took, built.took_s <= BUILD_S)
    memory = f"memory of all processes while building the site: {what}"
    yield Figure(memory, f"≤ {PEAK_GB} GB", f"{gb:.2f} GB at most (n = 1)", gb <= PEAK_GB)


def judge_pages(costs: Sequence[PageCost], what: str) -> Iterator[Figure]:
    """Hold what pages cost against the targets: the worst page decides."""
    pages = plural(len(costs), "page")
    for when, most_kb, kb in (
        ("before", BEFORE_KB, {cost.path: cost.before_bytes / 1000 for cost in costs}),
        ("after", AFTER_KB, {cost.path: cost.after_bytes / 1000 for cost in costs}),
    ):
        path = max(kb, key=kb.__getitem__)
        measured = f"{kb[path]:.0f} kB ({path}; lightest {min(kb.values()):.0f} kB, n = {pages})"
        heaviest = f"heaviest page {when} a chart is touched, compressed: {what}"
        yield Figure(heaviest, f"≤ {most_kb} kB", measured, kb[path] <= most_kb)
    for name, most_ms, loads_ms in (
        ("first contentful paint, slowest", PAINT_MS, {cost.path: cost.paints_ms for cost in costs}),
        ("blocking time (of tasks, beyond 50 ms), worst", BLOCKED_MS, {cost.path: cost.blocks_ms for cost in costs}),
    ):
        medians = {path: statistics.median(loads) for path, loads in loads_ms.items()}
        path = max(medians, key=medians.__getitem__)
        note = f" of {path}; best page {min(medians.values()):.0f} ms, {pages}"
        slowed = f"{name} page on a CPU slowed to 1/{SLOWER}: {what}"
        yield judge_median(slowed, most_ms, loads_ms[path], "ms", "load", note)


def browser_path() -> str | None:
    """Where Chromium is, if it and Playwright are installed."""
    names = ("chromium", "chromium-browser", "google-chrome") if find_spec("playwright") else ()
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def chromium(executable: str, site: Path) -> Iterator[tuple[Browser, str]]:
    """A browser without a window, and the address at which a site is served, for a ``with`` block."""
    from playwright.sync_api import Error, sync_playwright

    with served(site) as origin, sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        except Error as error:
            raise EnvironmentFault(f"bench: {executable} did not start: {_first_line(error)}") from error
        try:
            yield browser, origin
        finally:
            with suppress(Error):  # an interrupt has ended the browser too
                browser.close()


def page_cost(browser: Browser, origin: str, path: str, loads: int = LOADS) -> PageCost:
    """Open a page; that it does not load, paints nothing or draws no chart is a FeedrateError with its name."""
    before, after = _weigh(browser, origin, path)
    paints_ms, blocks_ms = zip(*(_load_slowly(browser, origin, path) for _ in range(loads)), strict=True)
    return PageCost(path, before, after, paints_ms, blocks_ms)


@contextmanager
def _opened(browser: Browser, path: str, width: int) -> Iterator[Page]:
    """An empty page with a cache of its own; what fails in it is reported with the page's name."""
    from playwright.sync_api import Error

    try:
        with browser.new_context(viewport={"width": width, "height": 800}) as context:
            context.set_default_timeout(_MOST_MS)
            yield context.new_page()
    except Error as error:
        raise FeedrateError(f"bench: {path} failed in the browser: {_first_line(error)}") from error


def _weigh(browser: Browser, origin: str, path: str) -> tuple[int, int]:
    """Bytes before and after the first chart is touched, each address once."""
    ended: list[Request] = []

    def size() -> int:
        return sum({request.url: _answer_bytes(request) for request in ended}.values())

    with _opened(browser, path, _WIDE) as page:
        page.on("requestfinished", partial(ended.append))  # Playwright marks its listeners: a method refuses that
        page.goto(origin + path, wait_until="networkidle")
        before = size()
        charts = page.locator(".fr-chart:visible")
        if charts.count():
            charts.first.focus()
            charts.first.locator(".fr-live svg").wait_for()
            page.wait_for_timeout(_QUIET_MS)
        return before, size()


def _load_slowly(browser: Browser, origin: str, path: str) -> tuple[float, float]:
    """First paint and total blocking time of one load with a slow main thread and an empty cache, in ms."""
    with _opened(browser, path, _PHONE) as page:
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        browser.start_tracing(page=page, categories=["toplevel", "loading"])
        page.goto(origin + path, wait_until="networkidle")
        page.wait_for_timeout(_QUIET_MS)
        paint = page.evaluate(_PAINT)  # answered once the main thread is free
        events = json.loads(browser.stop_tracing())["traceEvents"]
    if paint is None:
        raise FeedrateError(f"bench: {path} paints nothing")
    return float(paint), blocking_ms(events)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _answer_bytes(request: Request) -> int:
    """Compressed bytes of the answer; what needs none (data in an address) counts nothing."""
    response = request.response()
    if response is None or request.url.startswith("data:"):
        return 0
    body = response.body()
    return len(body) if request.url.partition("?")[0].endswith(_COMPRESSED) else len(gzip.compress(body, 6))


def blocking_ms(events: Sequence[Mapping[str, Any]]) -> float:
    """Total blocking time: what tasks take beyond 50 ms each, of one that runs at the first paint the rest.

    Tasks are those of a trace, in microseconds: the browser's own list (PerformanceObserver) lacks layout.
    https://web.dev/articles/tbt
    """
    paint = [event for event in events if event["name"] == "firstContentfulPaint"][-1]
    painted: float = paint["ts"]
    main_thread = ("ThreadControllerImpl::RunTask", paint["pid"], paint["tid"])
    tasks = [event for event in events if (event["name"], event["pid"], event["tid"]) == main_thread and "dur" in event]
    took_us: list[float] = [task["ts"] + task["dur"] - max(task["ts"], painted) for task in tasks]
    return sum(max(0.0, took / 1000 - 50) for took in took_us)
