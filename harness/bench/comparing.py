"""How long the page Compare takes for a large file, and how long it is held up by it, seen by a real browser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.bench import browsed
from harness.errors import FeedrateError
from harness.site_serve import served

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGE = "compare.html"
ROWS, TIMES = 100_000, 5
"""Trials of the file, more than a sweep takes in a day; and how often it is compared."""
_READY, _GIVEN, _DRAWN, _EXPLAINED = (f"fr-compare-{name}" for name in ("ready", "given", "drawn", "explained"))
_RESTED = f"""async () => {{
  while (!performance.getEntriesByName("{_READY}").length) await new Promise((go) => setTimeout(go, 20));
}}"""
_TRACED = ["toplevel", "blink.user_timing"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A file that was compared."""

    drawn_ms: float
    """From the choice of the file until the first picture."""
    explained_ms: float
    """Until all of the page stands."""
    longest_ms: float
    """The longest task of the page's main thread until all of the page stands, layout and painting included."""


def look(site: Path, file: Path, executable: str) -> list[Shown]:
    """Compare a file with a published run, ``TIMES`` times, each on a page of its own.

    Args:
        site: the folder of a built site, with a run of the file's device that is not the file's own.
        file: a ``trials.parquet``.
        executable: Chromium.

    Raises:
        EnvironmentFault: Chromium does not start, or no port is free.
        FeedrateError: the page does not load, or does not draw.
    """
    found = []
    with served(site) as origin, browsed.started(executable) as browser:
        for _ in range(TIMES):
            with browsed.opened(browser, PAGE) as page:
                page.goto(origin + PAGE)
                found.append(give(page, file))
    return found


def give(page: Page, file: Path) -> Shown:
    """Give the page a file, as a drop does, and wait until it is compared.

    Args:
        page: Compare, on which nothing was compared yet; it is waited for until it has rested.
        file: a ``trials.parquet``.

    Raises:
        FeedrateError: the file is refused, not drawn or not explained.
    """
    browser = page.context.browser
    if browser is None:
        raise FeedrateError("bench: the browser is gone")
    rested(page)
    browser.start_tracing(page=page, categories=_TRACED)
    try:
        page.locator("#fr-compare-input").set_input_files(file)
        page.get_by_role("heading", name="Why", exact=True).wait_for()
    finally:
        trace = browser.stop_tracing()
    if page.locator(".fr-compare-result .fr-missing").count():
        raise FeedrateError(f"bench: {PAGE}: {page.locator('.fr-compare-result .fr-missing').first.inner_text()}")
    return shown(json.loads(trace)["traceEvents"])


def rested(page: Page) -> None:
    """Wait until Compare takes files, and has done what it does beforehand."""
    page.locator(".fr-compare-drop").wait_for()
    page.evaluate(_RESTED)


def shown(events: Sequence[Mapping[str, Any]]) -> Shown:
    """Read a trace of a page that compared one file.

    Args:
        events: the page's own marks among them; times in microseconds.
    """
    given, drawn, explained = (_mark(events, name) for name in (_GIVEN, _DRAWN, _EXPLAINED))
    took_us = [
        task.ended - max(task.begun, given["ts"])
        for task in browsed.tasks(events, given["pid"], given["tid"])
        if task.ended > given["ts"] and task.begun < explained["ts"]
    ]
    drawn_ms, explained_ms = ((mark["ts"] - given["ts"]) / 1000 for mark in (drawn, explained))
    return Shown(drawn_ms, explained_ms, max(took_us, default=0) / 1000)


def _mark(events: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    found = [event for event in events if event["name"] == name and "blink.user_timing" in event["cat"]]
    if not found:
        raise FeedrateError(f"bench: {PAGE} does not say {name}")
    return found[-1]
