"""How long pages take to answer a reader, seen by a real browser: Compare given a large file, Explore filtering cells.

No machine measured as many cells as Explore is given: a run's cells stand there again and again, told apart by further
axes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from feedrate.bench.browser import Event, opened, started, tasks
from feedrate.pages import selection
from feedrate.pages.selection import Selection
from feedrate.questions.explore import page as explore_page
from feedrate.schema.errors import FeedrateError
from feedrate.site.serve import served

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

COMPARE, EXPLORE = "compare.html", "explore.html"
ROWS, FILES = 100_000, 5
"""Trials of the file that is compared, more than a sweep takes in a day; and how often it is."""
CELLS, CHANGES = 20_000, 10
"""Cells of Explore, and how often a filter is changed."""
_READY, _GIVEN, _DRAWN, _EXPLAINED = (f"fr-compare-{name}" for name in ("ready", "given", "drawn", "explained"))
_RESTED = f"""async () => {{
  while (!performance.getEntriesByName("{_READY}").length) await new Promise((go) => setTimeout(go, 20));
}}"""
_KIND = {"mode": "load", "workload": "div2k_standin"}
"""The cells that are repeated: of one kind, as only such are drawn together."""
_SAMPLES = 256
_LEFT_OUT = ("figures", "runs", "suites", "machines")
_INDEX = re.compile('data-index="[^"]*"')
_MOST_MS = 30_000
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


class ComparedFile(NamedTuple):
    """What it took to compare one file."""

    drawn_ms: float
    """From the choice of the file until the first picture."""
    explained_ms: float
    """Until all of the page stands."""
    longest_ms: float
    """The longest task of the page's main thread until all of the page stands, layout and painting included."""


class Filtered(NamedTuple):
    """What it took to take away the cells of one storage format, and to bring them back, in turns."""

    drawn_ms: tuple[float, ...]
    """From the click until everything was drawn anew and painted, of each change."""
    cpu_ms: float
    """CPU time of the page's main thread, mean over changes: what it would take were nothing else running."""


def compare_files(site: Path, file: Path, executable: str) -> list[ComparedFile]:
    """Compare a file with a published run, ``FILES`` times, each on a page of its own.

    Raises:
        EnvironmentFault: Chromium does not start, or no port is free.
        FeedrateError: the page does not load, or does not draw.
    """
    found = []
    with served(site) as origin, started(executable) as browser:
        for _ in range(FILES):
            with opened(browser, COMPARE) as page:
                page.goto(origin + COMPARE)
                found.append(give_file(page, file))
    return found


def wait_until_ready(page: Page) -> None:
    """Wait until Compare takes files, and has done what it does beforehand."""
    page.locator(".fr-compare-drop").wait_for()
    page.evaluate(_RESTED)


def give_file(page: Page, file: Path) -> ComparedFile:
    """Give Compare a file, as a drop does, and wait until it is compared.

    Raises:
        FeedrateError: the file is refused, not drawn or not explained.
    """
    browser = page.context.browser
    if browser is None:
        raise FeedrateError("bench: the browser is gone")
    wait_until_ready(page)
    browser.start_tracing(page=page, categories=["toplevel", "blink.user_timing"])
    try:
        page.locator("#fr-compare-input").set_input_files(file)
        page.get_by_role("heading", name="Why", exact=True).wait_for()
    finally:
        trace = browser.stop_tracing()
    refusal = page.locator(".fr-compare-result .fr-missing")
    if refusal.count():
        raise FeedrateError(f"bench: {COMPARE}: {refusal.first.inner_text()}")
    return read_trace(json.loads(trace)["traceEvents"])


def read_trace(events: Sequence[Event]) -> ComparedFile:
    """Read a trace of a page that compared one file."""
    marks = {event["name"]: event for event in events if "blink.user_timing" in event.get("cat", "")}
    for name in (_GIVEN, _DRAWN, _EXPLAINED):
        if name not in marks:
            raise FeedrateError(f"bench: {COMPARE} does not say {name}")
    given, drawn, explained = (marks[name]["ts"] for name in (_GIVEN, _DRAWN, _EXPLAINED))
    meanwhile = [task for task in tasks(events, marks[_GIVEN]) if task[1] > given and task[0] < explained]
    longest = max((ended - max(begun, given) for begun, ended in meanwhile), default=0)
    return ComparedFile((drawn - given) / 1000, (explained - given) / 1000, longest / 1000)


@dataclass(frozen=True)
class Crowd(Selection):
    """Runs as if they had measured very many cells: those of one kind again and again, over further axes."""

    count: int = CELLS

    @cached_property
    def cells(self) -> pd.DataFrame:
        """As many cells as ``count`` says, each with an id of its own."""
        own = selection.cells([shown.run for shown in self.every])
        one = own[own["n"].gt(0) & own["mode"].eq(_KIND["mode"]) & own["workload"].eq(_KIND["workload"])]
        places = [
            {"replica": at % 9, "read_us": at // 9 % 10, "n_samples": _SAMPLES * (1 + at // 90)}
            for at in range(-(-self.count // len(one)))
        ]
        cells = pd.concat([one.assign(**place) for place in places], ignore_index=True).iloc[: self.count]
        return cells.assign(cell_id=[f"{at:012x}" for at in range(self.count)])


def crowd(everyone: Selection, count: int = CELLS) -> Crowd:
    """Make very many cells of a few runs."""
    return Crowd(everyone.every, everyone.featured, everyone.detailed, everyone.brief, count=count)


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


def filter_explore(site: Path, executable: str, count: int = CELLS) -> Filtered:
    """Show all cells of a crowd on Explore, and take the time of ``CHANGES`` changes of a filter.

    Raises:
        EnvironmentFault: Chromium does not start, or no port is free.
        FeedrateError: the page does not load or draw, or has not as many cells as a crowd has.
    """
    with served(site) as origin, started(executable) as browser, opened(browser, EXPLORE) as page:
        page.goto(origin + EXPLORE)
        page.locator("#fr-explore .fr-explore-live svg").first.wait_for()
        shown = page.evaluate(_SHOW_ALL)
        if f"of {count:,} are drawn" not in shown:
            raise FeedrateError(f"bench: Explore does not hold {count:,} cells: {shown}")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = _busy_ms(session)
        drawn = page.evaluate(_FILTER, CHANGES)
        return Filtered(tuple(drawn), (_busy_ms(session) - before) / CHANGES)


def _busy_ms(session: CDPSession) -> float:
    """CPU time of the page's main thread so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(1000 * float(each["value"]) for each in metrics if each["name"] == "TaskDuration")
