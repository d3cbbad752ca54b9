"""The hands of a reader on the page Explore: its lists, check boxes, address and table, for tests in a browser.

Every test file loads this module, so it imports no part of the harness before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from playwright.sync_api import Page

DRAWN = ".fr-explore-main .fr-explore-live .mark-symbol path"


def ready(page: Page) -> Page:
    """Wait until marks are drawn."""
    page.locator(DRAWN).first.wait_for()
    return page


def choose(page: Page, name: str, value: str) -> None:
    """Choose in a list of the control bar, and wait until that is drawn."""
    after(page, lambda: page.locator(f".fr-explore select[name={name}]").select_option(value))


def after(page: Page, act: Callable[[], object]) -> None:
    """Act, and wait until what that changes is drawn."""
    count = "performance.getEntriesByName('fr-explore').length"
    before = page.evaluate(count)
    act()
    for _ in range(1200):
        if page.evaluate(count) > before:
            return
        page.wait_for_timeout(25)
    raise AssertionError("nothing was drawn")


def tick(page: Page, name: str, value: str) -> None:
    """Press a check box of a filter, and wait until that is drawn."""
    page.locator("details.fr-explore-filters, details.fr-explore-runs, details.fr-explore-machines").evaluate_all(
        "all => all.forEach(one => { one.open = true })"
    )
    after(page, page.locator(f".fr-explore label:has(input[name='{name}'][value='{value}'])").click)


def state(page: Page) -> dict[str, list[str]]:
    """What the address says."""
    pairs = (part.partition("=") for part in page.url.partition("#")[2].split("&"))
    return {unquote(name): [unquote(value) for value in values.split(",")] for name, _, values in pairs}


def marks(page: Page) -> list[str]:
    """Every cell that is drawn, with its numbers, as the downloaded table says."""
    with page.expect_download() as got:
        page.get_by_role("button", name="Download CSV").click()
    lines = Path(got.value.path()).read_text(encoding="utf-8").splitlines()
    return sorted(lines)


def body(page: Page) -> list[list[str]]:
    """The rows of the table that are shown."""
    return [row.locator("td").all_inner_texts() for row in page.locator(".fr-explore-table tbody tr").all()]
