"""Tables of runs can be filtered by tier, by keyboard too; where there is one tier alone there is nothing to choose."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import Browser, Page

from feedrate.pages.runs import load_runs
from feedrate.questions.reference import page as reference_page
from feedrate.site import scripts
from feedrate.store import marks, runs


def opened(browser: Browser, results: Path) -> Page:
    """The list of runs with the script, as the site has it."""
    page = browser.new_page()
    page.set_content(reference_page.runs_page(load_runs(results)).body)
    scripts.bundle(results.parent / "scripts", ("site/tiers.js",))
    page.add_script_tag(path=results.parent / "scripts" / "site" / "tiers.js", type="module")
    return page


@pytest.mark.slow
def test_rows_of_a_tier_can_be_chosen(browser: Browser, fake_run: ModuleType, tmp_path: Path) -> None:
    """A box leaves the runs of its tier and says how many those are; none or both leave all."""
    for run_id in ("one", "two", "three"):
        fake_run.write(tmp_path, fake_run.Fake(run_id=run_id, blocks=1, batches=(8,)))
    page = opened(browser, tmp_path)
    assert page.locator("input").count() == 0
    page.close()
    marks.set_tier(runs.find("two", tmp_path).folder, marks.REFERENCE)
    page = opened(browser, tmp_path)
    rows = page.locator("tbody tr:visible")
    assert page.locator("label").all_inner_texts() == ["reference 1", "self-reported 2"]
    assert rows.count() == 3
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert rows.count() == 1
    assert "two" in rows.inner_text()
    assert page.locator(".fr-filter-said").inner_text() == "1 of 3 rows are shown."
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert rows.count() == 3
    page.close()
