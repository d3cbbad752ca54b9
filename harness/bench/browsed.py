"""What a page of the website costs its reader, seen by a real browser: bytes, time to the first paint, time blocked.

Chromium runs without a window on this machine, its CPU slowed down as that of a phone; the network is this machine's
own and costs nothing, so the times are those of parsing, laying out and running scripts. Bytes are those of every
answer, compressed as web servers do it (gzip, level 6); what is compressed already counts as it is.
"""

from __future__ import annotations

import gzip
import shutil
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.site_serve import bind

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

SLOWER = 4
"""By how much the CPU is slowed down."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "needs Chromium; type: sudo apt-get install chromium"
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_PACKED = (".png", ".jpg", ".gz", ".woff2", ".pdf")
_LOADS = 5
_QUIET_MS = 500
"""How long after it has loaded a page may still be busy with itself."""
_WATCH = """
window.__long = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.__long.push([one.startTime, one.duration]);
}).observe({ type: "longtask", buffered: true });
"""
_SEEN = """() => {
  const painted = performance.getEntriesByName("first-contentful-paint")[0];
  const first = painted ? painted.startTime : null;
  const after = window.__long.filter(([start, took]) => start + took > (first ?? 0));
  return [first, after.reduce((sum, [, took]) => sum + Math.max(0, took - 50), 0)];
}"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one page costs."""

    path: str
    before_bytes: int
    """Of all answers until the page rests, compressed."""
    after_bytes: int
    """Likewise, after a chart was touched; the same where it has none."""
    paint_ms: float
    """First contentful paint with a slow CPU, median of some loads."""
    blocked_ms: float
    """What tasks after it took beyond 50 ms each (total blocking time), median."""


def browser_path() -> str | None:
    """Where Chromium is, if it and Playwright are installed."""
    try:
        import playwright.sync_api  # noqa: F401 - asked whether it is there
    except ImportError:
        return None
    return next(filter(None, map(shutil.which, NAMES)), None)


def costs(site: Path, paths: Sequence[str], executable: str) -> list[Cost]:
    """Open pages of a built site.

    Args:
        site: the folder of the site.
        paths: of pages below it.
        executable: Chromium.
    """
    with _serving(site) as origin, _started(executable) as browser:
        return [_cost(browser, origin, path) for path in paths]


@contextmanager
def _serving(site: Path) -> Iterator[str]:
    server = bind(site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _started(executable: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def _cost(browser: Browser, origin: str, path: str) -> Cost:
    before, after = _bytes(browser, origin + path)
    loads = [_slow(browser, origin + path) for _ in range(_LOADS)]
    paint, blocked = (statistics.median(each) for each in zip(*loads, strict=True))
    return Cost(path, before, after, paint, blocked)


def _bytes(browser: Browser, address: str) -> tuple[int, int]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))  # noqa: PLW0108 - Playwright marks what it is given
    page.goto(address, wait_until="networkidle")
    before = sum(map(_size, asked))
    _touch(page)
    after = sum(map(_size, asked))
    context.close()
    return before, after


def _size(request: Request) -> int:
    """Bytes of the answer, once it is there; what needs none (data in an address) counts nothing."""
    response = request.response()
    if response is None or request.url.startswith("data:"):
        return 0
    body = response.body()
    packed = request.url.partition("?")[0].endswith(_PACKED)
    return len(body) if packed else len(gzip.compress(body, 6))


def _touch(page: Page) -> None:
    """Focus the first chart and wait until it is drawn anew."""
    charts = page.locator(".fr-chart")
    if charts.count():
        charts.first.focus()
        charts.first.locator(".fr-live svg").wait_for()


def _slow(browser: Browser, address: str) -> tuple[float, float]:
    """First paint and blocked time of one load with a slow CPU and an empty cache, in milliseconds."""
    context = browser.new_context(viewport={"width": 360, "height": 800})
    page = context.new_page()
    page.add_init_script(_WATCH)
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    page.goto(address, wait_until="load")
    page.wait_for_timeout(_QUIET_MS)
    paint, blocked = page.evaluate(_SEEN)
    context.close()
    return float(paint), float(blocked)
