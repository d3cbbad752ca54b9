"""How long the page Explore takes for a change of a filter among very many cells, seen by a real browser.

No machine measured so many: a run's cells stand there again and again, told apart by further axes.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from harness.bench import browsed
from harness.errors import FeedrateError
from harness.pages import explore, known
from harness.pages.featured import Cast
from harness.site_serve import served

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

CELLS, TIMES = 20_000, 10
PAGE = "explore.html"
_KIND = {"mode": "load", "workload": "div2k_standin"}
"""The cells that are repeated: of one kind, as only such are drawn together."""
_SAMPLES = 256
_LEFT_OUT = ("figures", "runs", "suites", "machines")
_INDEX = re.compile('data-index="[^"]*"')
_DRAWN = "#fr-explore .fr-explore-live svg"
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
_ALL = f"""async () => {{{_AFTER}
  document.querySelector("details.fr-explore-filters").open = true;
  for (const all of document.querySelectorAll("details.fr-explore-filters fieldset button")) {{
    if (!all.disabled) await after(() => all.click());
  }}
  return document.querySelector(".fr-explore-problems").innerText;
}}"""
_CHANGES = f"""async (times) => {{{_AFTER}
  const took = [];
  for (let each = 0; each < times; each += 1) {{
    took.push(await after(() => document.querySelector("input[name=storage_format][value=png]").click()));
  }}
  return took;
}}"""


@dataclass(frozen=True)
class Crowd(Cast):
    """Runs as if they had measured very many cells: those of one kind again and again, over further axes."""

    count: int = CELLS

    @cached_property
    def cells(self) -> pd.DataFrame:
        """As many cells as ``count`` says, each with an id of its own."""
        own = known.cells([shown.run for shown in self.every])
        one = own[own["n"].gt(0) & own["mode"].eq(_KIND["mode"]) & own["workload"].eq(_KIND["workload"])]
        places = [
            {"replica": at % 9, "read_us": at // 9 % 10, "n_samples": _SAMPLES * (1 + at // 90)}
            for at in range(-(-self.count // len(one)))
        ]
        cells = pd.concat([one.assign(**place) for place in places], ignore_index=True).iloc[: self.count]
        return cells.assign(cell_id=[f"{at:012x}" for at in range(self.count)])


@dataclass(frozen=True, slots=True)
class Changes:
    """What it took to take away the cells of one storage format, and to bring them back, in turns."""

    drawn_ms: tuple[float, ...]
    """From the click until everything was drawn anew and painted, of each change."""
    cpu_ms: float
    """CPU time of the page's main thread, mean over changes: what it would take were nothing else running."""


def crowd(everyone: Cast, count: int = CELLS) -> Crowd:
    """Make very many cells of a few runs.

    Args:
        everyone: runs with cells that load ``div2k_standin`` from PNG and from another format.
        count: how many.
    """
    return Crowd(everyone.every, everyone.featured, everyone.detailed, everyone.brief, count=count)


def anew(site: Path, everyone: Cast, folder: Path) -> Path:
    """Copy a site, with its page Explore made anew from other runs.

    Args:
        site: the folder of a built site.
        everyone: the other runs.
        folder: gets the copy, without the pages of suites, machines and runs.

    Returns:
        ``folder``.
    """
    shutil.copytree(site, folder, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    shutil.rmtree(folder / "explore", ignore_errors=True)
    page = explore.page(everyone)
    for path, text in page.files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(str(text), encoding="utf-8")
    address = _INDEX.search("".join(placed.html for placed in page.figures.values()))
    html = (folder / PAGE).read_text(encoding="utf-8")
    if address is None or not _INDEX.search(html):
        raise FeedrateError("bench: Explore has no cell")
    (folder / PAGE).write_text(_INDEX.sub(address[0], html), encoding="utf-8")
    return folder


def look(site: Path, executable: str, count: int = CELLS) -> Changes:
    """Open Explore of a crowd and change a filter.

    Args:
        site: of ``anew``, made from a ``Crowd``.
        executable: Chromium.
        count: of the crowd's cells.

    Raises:
        EnvironmentFault: Chromium does not start, or no port is free.
        FeedrateError: the page does not load, or does not draw.
    """
    with served(site) as origin, browsed.started(executable) as browser, browsed.opened(browser, PAGE) as page:
        page.goto(origin + PAGE)
        page.locator(_DRAWN).first.wait_for()
        return changes(page, count)


def changes(page: Page, count: int) -> Changes:
    """Show all cells of a crowd, and take the time of ``TIMES`` changes of a filter.

    Args:
        page: Explore, drawn.
        count: of the crowd's cells.

    Raises:
        FeedrateError: there are not as many cells as a crowd has.
    """
    said = page.evaluate(_ALL)
    if f"of {count:,} are drawn" not in said:
        raise FeedrateError(f"bench: Explore does not hold {count:,} cells: {said}")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _busy_ms(session)
    drawn = page.evaluate(_CHANGES, TIMES)
    return Changes(tuple(drawn), (_busy_ms(session) - before) / TIMES)


def _busy_ms(session: CDPSession) -> float:
    """CPU time of the page's main thread so far."""
    told = session.send("Performance.getMetrics")["metrics"]
    return next(1000 * float(each["value"]) for each in told if each["name"] == "TaskDuration")
