"""What the website costs its reader, seen by a real browser: bytes, first paint, time blocked, a filter of Explore.

Chromium runs without a window on this machine, the main thread of its pages slowed down as on a phone; the network is
this machine's own and costs nothing, so the times are those of parsing, laying out and running scripts. Bytes are those
of every answer, compressed as web servers do it (gzip, level 6); what is compressed already counts as it is.

No machine measured as many cells as Explore is given here: a run's cells stand there again and again, told apart by
further axes.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from feedrate.bench.session import Figure
from feedrate.pages import selection
from feedrate.pages.selection import Selection
from feedrate.questions.explore import page as explore_page
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
EXPLORE = "explore.html"
CELLS, CHANGES = 20_000, 10
"""Cells of Explore, and how often a filter is changed."""
_LEFT_OUT = ("figures", "runs", "suites", "machines")
_INDEX = re.compile('data-index="[^"]*"')
_AFTER = f"""
const drawn = () => performance.getEntriesByName("fr-explore").length;
const after = async (press) => {{
  const [before, begun] = [drawn(), performance.now()];
  press();
  while (drawn() === before) {{
    if (performance.now() - begun > {_MOST_MS}) throw new Error("a change was not drawn in {_MOST_MS} ms");
    await new Promise((go) => setTimeout(go, 4));
  }}
  await new Promise((go) => requestAnimationFrame(() => setTimeout(go)));
  return performance.now() - begun;
}};
"""
"""Press something and wait until that is drawn and painted; the milliseconds that it took."""
_SHOW_ALL = f"""async () => {{{_AFTER}
  document.querySelector("details.fr-explore-filters").open = true;
  for (const all of document.querySelectorAll("details.fr-explore-filters fieldset button")) {{
    if (!all.disabled) await after(() => all.click());
  }}
  return document.querySelector(".fr-explore-problems").innerText;
}}"""
_FILTER = f"""async (times) => {{{_AFTER}
  const took = [];
  for (let each = 0; each < times; each += 1) {{
    took.push(await after(() => document.querySelector("input[name=storage_format][value=png]").click()));
  }}
  return took;
}}"""
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
    """Run Chromium without a window for as long as a ``with`` block lasts."""
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
    """Give an empty page with a cache of its own; what fails in it is reported with the page's name."""
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
    """Open pages of a built site; one that does not load, paints nothing or draws no chart is an error."""
    found = []
    with served(site) as origin, started(executable) as browser:
        for path in paths:
            before, after = _weigh(browser, origin, path)
            paints, blocks = zip(*(_load_slowly(browser, origin, path) for _ in range(LOADS)), strict=True)
            found.append(PageCost(path, before, after, paints, blocks))
    return found


def weights(site: Path, paths: Sequence[str], executable: str) -> list[PageCost]:
    """Weigh pages of a built site; no times are taken."""
    with served(site) as origin, started(executable) as browser:
        return [PageCost(path, *_weigh(browser, origin, path), (), ()) for path in paths]


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

    Tasks are those of a trace: the browser's own list (PerformanceObserver) lacks layout. https://web.dev/articles/tbt
    """
    paint = [event for event in events if event["name"] == "firstContentfulPaint"][-1]
    painted: float = paint["ts"]
    wanted = ("ThreadControllerImpl::RunTask", paint["pid"], paint["tid"])
    tasks = [each for each in events if (each["name"], each["pid"], each["tid"]) == wanted and "dur" in each]
    took_us: list[float] = [task["ts"] + task["dur"] - max(task["ts"], painted) for task in tasks]
    return sum(max(0.0, took / 1000 - 50) for took in took_us)


@dataclass(frozen=True)
class Crowd(Selection):
    """Runs as if they had measured very many cells: those of one kind again and again, over further axes."""

    count: int = CELLS

    @cached_property
    def cells(self) -> pd.DataFrame:
        """As many cells as ``count`` says, each with an id of its own."""
        own = selection.cells([shown.run for shown in self.every])
        # Only cells of one kind are drawn together.
        one = own[own["n"].gt(0) & own["mode"].eq("load") & own["workload"].eq("div2k_standin")]
        places = [
            {"replica": at % 9, "read_us": at // 9 % 10, "n_samples": 256 * (1 + at // 90)}
            for at in range(-(-self.count // len(one)))
        ]
        cells = pd.concat([one.assign(**place) for place in places], ignore_index=True).iloc[: self.count]
        return cells.assign(cell_id=[f"{at:012x}" for at in range(self.count)])


def crowd(everyone: Selection, count: int = CELLS) -> Crowd:
    """Make very many cells of a few runs."""
    return Crowd(everyone.every, everyone.featured, count=count)


def with_explore(site: Path, everyone: Selection, folder: Path) -> Path:
    """Copy a site, with its page Explore made anew from other runs."""
    shutil.copytree(site, folder, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    shutil.rmtree(folder / "explore", ignore_errors=True)
    page = explore_page.page(everyone)
    for path, text in page.files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(str(text), encoding="utf-8")
    address = _INDEX.search("".join(placed.html for placed in page.figures.values()))
    html = (folder / EXPLORE).read_text(encoding="utf-8")
    if address is None or not _INDEX.search(html):
        raise FeedrateError("bench: Explore has no cell")
    (folder / EXPLORE).write_text(_INDEX.sub(address[0], html), encoding="utf-8")
    return folder


def filter_explore(site: Path, executable: str, count: int = CELLS) -> list[float]:
    """Show all cells of a crowd on Explore; take away those of one storage format and bring them back, in turns.

    The times are milliseconds from the click until everything was drawn anew and painted, of each change.
    """
    with served(site) as origin, started(executable) as browser, opened(browser, EXPLORE) as page:
        page.goto(origin + EXPLORE)
        page.locator("#fr-explore .fr-explore-live svg").first.wait_for()
        shown = page.evaluate(_SHOW_ALL)
        if f"of {count:,} are drawn" not in shown:
            raise FeedrateError(f"bench: Explore does not hold {count:,} cells: {shown}")
        took: list[float] = page.evaluate(_FILTER, CHANGES)
        return took
