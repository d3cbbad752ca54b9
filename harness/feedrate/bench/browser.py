"""What a page of the website costs its reader, seen by a real browser: bytes, time to the first paint, time blocked.

Chromium runs without a window on this machine, the main thread of its pages slowed down as on a phone; the network is
this machine's own and costs nothing, so the times are those of parsing, laying out and running scripts. Bytes are those
of every answer, compressed as web servers do it (gzip, level 6); what is compressed already counts as it is.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from feedrate.bench.session import Figure
from feedrate.schema.errors import EnvironmentFault, FeedrateError
from feedrate.site.serve import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

SLOWER = 4
"""By how much the main thread of a page is slowed down."""
LOADS = 5
"""Slow loads of a page, each with an empty cache."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "needs Chromium; type: sudo apt-get install chromium"
WIDE, PHONE = 1280, 360
"""Widths of a page in pixels: where bytes are counted, and where times are taken."""
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_COMPRESSED = (".png", ".jpg", ".gz", ".woff2", ".pdf", ".parquet")
_QUIET_MS, _MOST_MS = 500, 30_000
"""A page rests when it has neither worked nor asked for anything for so long; one that never does is left."""
_REST = """async ([quiet, most]) => {
  let [calm, answers] = [performance.now(), 0];
  while (performance.now() - calm < quiet && performance.now() < most) {
    const begun = performance.now();
    await new Promise((go) => setTimeout(go, 20));
    const now = performance.now();
    const there = performance.getEntriesByType("resource").length;
    if (now - begun > 70 || there !== answers) calm = now;
    answers = there;
  }
  return performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null;
}"""
"""A timer that comes late says that the main thread was busy."""
Event = Mapping[str, Any]
"""Of a trace; its times are microseconds."""


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


def browser_path() -> str | None:
    """Where Chromium is, if it and Playwright are installed."""
    try:
        import playwright.sync_api  # noqa: F401 - asked whether it is there
    except ImportError:
        return None
    return next(filter(None, map(shutil.which, NAMES)), None)


def with_browser(what: str, target: str, look: Callable[[str], Iterable[Figure]]) -> list[Figure]:
    """Take figures that need a browser; ``look`` is given Chromium's path.

    Without a browser nothing is judged: one figure says so. A page that fails in it has missed its figures.
    """
    if (chromium := browser_path()) is None:
        return [Figure(what, target, MISSING, None)]
    try:
        return list(look(chromium))
    except FeedrateError as error:
        return [Figure(what, target, str(error), None if isinstance(error, EnvironmentFault) else False)]


@contextmanager
def started(executable: str) -> Iterator[Browser]:
    """Run Chromium without a window for as long as a ``with`` block lasts.

    Raises:
        EnvironmentFault: it does not start.
    """
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        except Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise EnvironmentFault(f"bench: {executable} did not start: {reason}") from error
        try:
            yield browser
        finally:
            with suppress(Error):  # an interrupt has ended the browser too
                browser.close()


@contextmanager
def opened(browser: Browser, path: str, width: int = WIDE) -> Iterator[Page]:
    """Give an empty page with a cache of its own; what fails in it is reported with the page's name.

    Raises:
        FeedrateError: the browser reports an error meanwhile.
    """
    from playwright.sync_api import Error

    try:
        context = browser.new_context(viewport={"width": width, "height": 800})
        context.set_default_timeout(_MOST_MS)
        yield context.new_page()
        context.close()
    except Error as error:
        reason = str(error).strip().partition("\n")[0]
        raise FeedrateError(f"bench: {path} failed in the browser: {reason}") from error


def page_costs(site: Path, paths: Sequence[str], executable: str) -> list[PageCost]:
    """Open pages of a built site.

    Raises:
        EnvironmentFault: Chromium does not start, or no port is free.
        FeedrateError: a page does not load, paints nothing, or its chart is not drawn.
    """
    found = []
    with served(site) as origin, started(executable) as browser:
        for path in paths:
            before, after = _weigh(browser, origin, path)
            paints, blocks = zip(*(_load_slowly(browser, origin, path) for _ in range(LOADS)), strict=True)
            found.append(PageCost(path, before, after, paints, blocks))
    return found


def _weigh(browser: Browser, origin: str, path: str) -> tuple[int, int]:
    """Bytes before and after the first chart is touched."""
    requests: list[Request] = []
    ended: list[Request] = []
    with opened(browser, path) as page:
        page.on("request", partial(requests.append))  # Playwright marks its listeners: a plain method refuses that
        page.on("requestfinished", partial(ended.append))
        page.on("requestfailed", partial(ended.append))

        def size() -> int:
            """Wait until nothing has been under way for a while; bytes of all answers so far, each address once."""
            for _ in range(_MOST_MS // _QUIET_MS):
                before = len(requests)
                page.wait_for_timeout(_QUIET_MS)
                if before == len(requests) == len(ended):
                    return sum({request.url: _answer_bytes(request) for request in requests}.values())
            raise FeedrateError(f"bench: {page.url} does not stop asking for more")

        page.goto(origin + path, wait_until="load")
        before = size()
        charts = page.locator(".fr-chart:visible")
        if charts.count():
            charts.first.focus()
            charts.first.locator(".fr-live svg").wait_for()
        return before, size()


def _answer_bytes(request: Request) -> int:
    """Compressed bytes of the answer; what needs none (data in an address) counts nothing."""
    response = request.response()
    if response is None or request.url.startswith("data:"):
        return 0
    body = response.body()
    compressed = request.url.partition("?")[0].endswith(_COMPRESSED)
    return len(body) if compressed else len(gzip.compress(body, 6))


def _load_slowly(browser: Browser, origin: str, path: str) -> tuple[float, float]:
    """First paint and total blocking time of one load with a slow main thread and an empty cache, in milliseconds."""
    with opened(browser, path, PHONE) as page:
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        browser.start_tracing(page=page, categories=["toplevel", "loading"])
        page.goto(origin + path, wait_until="load")
        paint = page.evaluate(_REST, [_QUIET_MS, _MOST_MS])
        events = json.loads(browser.stop_tracing())["traceEvents"]
    if paint is None:
        raise FeedrateError(f"bench: {path} paints nothing")
    return float(paint), blocking_ms(events)


def blocking_ms(events: Sequence[Event]) -> float:
    """Total blocking time: what tasks take beyond 50 ms each, of one that runs at the first paint the rest.

    https://web.dev/articles/tbt
    """
    paint = [event for event in events if event["name"] == "firstContentfulPaint"][-1]
    painted: float = paint["ts"]
    return sum(max(0.0, (ended - max(begun, painted)) / 1000 - 50) for begun, ended in tasks(events, paint))


def tasks(events: Sequence[Event], mark: Event) -> list[tuple[float, float]]:
    """Begin and end of the tasks of a mark's thread; the browser's own list (PerformanceObserver) lacks layout."""
    wanted = ("ThreadControllerImpl::RunTask", mark["pid"], mark["tid"])
    return [
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if (event["name"], event["pid"], event["tid"]) == wanted and "dur" in event
    ]
