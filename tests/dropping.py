"""The hands of a reader on the page Compare: files that are dropped on it, and what it says, for tests in a browser.

Every test file loads this module, so it imports no part of the harness before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import visits

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from visits import Site

FASTER = 1.5
SINCE_GIVEN = "performance.now() - performance.getEntriesByName('fr-compare-given').at(-1).startTime"
REFUSED_MS = f"""async (name) => {{
  const refused = document.querySelector(".fr-compare-refused");
  while (!refused.textContent.includes(name)) await new Promise((go) => setTimeout(go, 5));
  return {SINCE_GIVEN};
}}"""


def made(fake_run: ModuleType, results: Path, run_id: str, factor: float = FASTER, **what: Any) -> Path:
    """Make up a run that is faster than its formulas say, and give its file."""
    from feedrate.store import runs

    fake = fake_run.Fake(run_id=run_id, **({"workers": (0, 1, 2)} | what))
    tables = fake_run.rows(fake)
    for row in tables["trials"]:
        if row["outcome"] == "ok":
            row["samples_per_s"] *= factor
    run = fake_run.manifest(fake, tables["trials"])
    folder: Path = results / run.machine.machine_id / "run"
    folder.mkdir(parents=True)
    runs.write_run(folder, run, [tables])
    return folder / "trials.parquet"


def four_cores(fake_run: ModuleType, results: Path) -> Path:
    """The ``trials.parquet`` of a machine of four cores that feeds 1.5 times as fast as the published ones."""
    return made(fake_run, results, "20260104T030405Z-four", cores=4)


def published(site: Site, browser: Browser) -> Iterator[Page]:
    """The page of two published machines, on which nothing may have gone wrong in the end."""
    seen = visits.visit(browser, site)
    yield ready(seen.open("compare.html"))
    assert seen.problems == []


def ready(page: Page) -> Page:
    """Wait until files can be given."""
    page.locator(".fr-compare-drop").wait_for()
    return page


def give(page: Page, *files: Path) -> None:
    """Choose files, as a drop does."""
    page.locator("#fr-compare-input").set_input_files(list(files))


def result(page: Page) -> str:
    """Wait for a comparison with its explanation, and give its first sentence."""
    page.get_by_role("heading", name="Why", exact=True).wait_for()
    return page.locator(".fr-compare-result .fr-answer").inner_text()
