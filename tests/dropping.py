"""The hands of a reader on the page Compare: files that are dropped on it, and what it says, for tests in a browser.

Every test file loads this module, so it imports no part of the harness before it is used.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page


def made(fake_run: ModuleType, results: Path, run_id: str, factor: float = 1.5, **what: Any) -> Path:
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


def ready(page: Page) -> Page:
    """Wait until files can be given."""
    page.locator(".fr-compare-drop").wait_for()
    return page


def give(page: Page, *files: Path) -> None:
    """Choose files, as a drop does."""
    page.locator("#fr-compare-input").set_input_files(list(files))


def result(page: Page) -> str:
    """Wait for a comparison, and give its first sentence."""
    page.locator(".fr-compare-result:not([hidden], [aria-busy])").wait_for()
    return page.locator(".fr-compare-result .fr-answer").inner_text()
