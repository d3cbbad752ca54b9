"""The Claims page in a real browser: check boxes, addresses, pictures that follow, and everything without scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from visits import Site, unfold, visit

from feedrate.pages.runs import load_runs
from feedrate.pages.selection import select
from feedrate.pages.verdicts import load_verdicts
from feedrate.plan.suite import claims
from feedrate.questions.claims import page as claims_page
from feedrate.site.publish import publish, put_assets
from feedrate.site.serve import served

pytestmark = pytest.mark.slow

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def built(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The page alone: claims of two suites on a machine without a GPU, those of one of them on a machine with one."""
    root = tmp_path_factory.mktemp("claims")
    common = {"suites": ("claims",), "blocks": 6, "fails": "none"}
    fake_run.write(root / "results", fake_run.Fake(**common, claims=("collate", "loader")))
    gpu = {"run_id": "20260103T030405Z-gpu", "device": "cuda", "claims": ("loader",)}
    fake_run.write(root / "results", fake_run.Fake(**common, **gpu))
    page = claims_page.page(load_verdicts(select(load_runs(root / "results")).of_claims()))
    put_assets(root / "docs")
    publish(root / "docs", root / "site", [{"Claims": claims_page.PATH}], [page])
    with served(root / "site") as address:
        yield Site(root / "results", root / "site", address)


@pytest.fixture
def opened(built: Site, browser: Browser) -> Iterator[Open]:
    """Open pages of it, each in a context of its own; nothing may go wrong on any."""
    visits = []

    def make(path: str, width: int = 1280, **options: Any) -> Page:
        visits.append(visit(browser, built, width, **options))
        return visits[-1].open(path)

    yield make
    # Scripts that are not allowed to run count as refused.
    assert [problem for seen in visits for problem in seen.problems if not problem.endswith("csp")] == []


def ids(page: Page) -> list[str]:
    """Claims that can be seen."""
    found: list[str] = page.locator(".fr-claim:visible").evaluate_all("all => all.map(one => one.dataset.claim)")
    return found


def test_check_boxes_leave_claims_everywhere(opened: Open) -> None:
    """A verdict leaves its claims in list, table and pictures; a second one adds, a source narrows."""
    page = opened("claims.html")
    rows, machines = page.locator("#claims-table [data-row]"), page.locator("#claims-table [scope='rowgroup']")
    unfold(page.locator("#claims .fr-data summary"))
    every = rows.locator("visible=true").count()
    page.locator("input[value='not testable here']").check()
    untested = ids(page)
    assert 0 < len(untested) < len(claims())
    assert f"{len(untested)} of {len(claims())} claims are shown" in page.locator(".fr-filter-said").inner_text()
    assert rows.locator("visible=true").count() == machines.locator("visible=true").count() == 0
    expect(page.locator("#claims .fr-panel:visible")).to_have_count(0)
    page.locator("input[value='confirmed']").check()
    assert set(ids(page)) > set(untested)
    page.locator("input[value='not testable here']").uncheck()
    confirmed = ids(page)
    texts = rows.locator("visible=true").all_inner_texts()
    assert 0 < len(texts) < every
    assert all("confirmed" in text for text in texts)
    drawn = [name for name in confirmed if claims()[name][1].effect]  # a fact is true or not, and has no effect
    assert {text.split()[0] for text in texts} == set(drawn)
    page.locator("input[value='IO']").check()
    narrowed = ids(page)
    assert set(narrowed) == {name for name in confirmed if "IO" in claims()[name][1].sources}
    for heading in page.locator("h2:visible").all_inner_texts():
        assert heading.strip("¶ \n").lower() not in ("training", "transfer")
    picture = page.locator("#claims .fr-panel:visible .fr-live text").filter(
        has_text=next(name for name in drawn if name in narrowed)
    )
    picture.first.wait_for()
    gone = next(name for name in drawn if name not in narrowed)
    expect(page.locator("#claims .fr-panel:visible svg text").filter(has_text=gone)).to_have_count(0)


def test_what_is_chosen_stands_in_the_address(opened: Open) -> None:
    """The address of a choice shows the same claims elsewhere, in a table that is unfolded late too."""
    page = opened("claims.html")
    page.locator("input[value='cuda']").check()
    page.locator("input[value='confirmed']").check()
    page.locator("input[value='not testable here']").check()
    shown, address = ids(page), page.url
    assert address.endswith("#verdict=confirmed,not%20testable%20here&device=cuda")
    again = opened("claims.html#" + address.partition("#")[2])
    assert ids(again) == shown
    assert again.locator("input[value='cuda']").is_checked()
    unfold(again.locator("#claims .fr-data summary"))
    texts = again.locator("#claims-table [data-row]").locator("visible=true").all_inner_texts()
    assert texts
    assert all("confirmed" in text or "not testable" in text for text in texts)
    for value in ("cuda", "confirmed", "not testable here"):
        again.locator(f"input[value='{value}']").uncheck()
    assert set(ids(again)) == set(claims())
    assert again.url.endswith("claims.html")


def test_a_link_to_a_claim_unfolds_it(opened: Open) -> None:
    """A deep link opens its section and brings it into view; so does a link on the page, whatever was chosen.

    A link to another place leaves the choice as it is.
    """
    page = opened("claims.html#claim-gil-threads")
    assert page.locator("#claim-gil-threads").get_attribute("open") is not None
    expect(page.locator("#claim-gil-threads")).to_be_in_viewport()
    page = opened("claims.html#verdict=confirmed")
    shown = ids(page)
    page.evaluate("location.hash = '#sources'")
    expect(page.locator("#sources")).to_be_in_viewport()
    assert ids(page) == shown
    page.evaluate("location.hash = '#claim-pin-danger'")
    expect(page.locator("#claim-pin-danger .fr-facts")).to_be_visible()
    expect(page.locator(".fr-claim[hidden]")).to_have_count(0)
