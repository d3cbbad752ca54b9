"""The report as a page: in a real browser, from a file, without a network."""

from __future__ import annotations

import re
from types import ModuleType

import pytest
from playwright.sync_api import Browser, Page, expect

from feedrate.attach import page as page_
from feedrate.attach.profiler import Frame, Stack

pytestmark = pytest.mark.slow
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"
FETCH = Frame("fetch", "/env/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 54)
MINE = Frame("__getitem__", "/home/me/data.py", 7)


@pytest.fixture(scope="module")
def shown(fake_script: ModuleType, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of a made-up script whose hottest line is hostile; its workers were seen in two libraries."""
    ended = fake_script.ended(fake_script.Script(code=HOSTILE))
    libraries = (Frame("decode", "/env/lib/python3.11/site-packages/kit.py", 1), Frame("read", "/kit.py", 2))
    stacks = [Stack(100, "1", True, (FETCH, MINE, library), 3) for library in libraries]
    path = tmp_path_factory.mktemp("page") / "page.html"
    page_.write(ended.report, ended.processes, stacks, path)
    page = browser.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if "page.html" not in request.url else None)
    page.goto(path.as_uri())
    assert problems == []
    return page


def test_the_bar_has_every_row(shown: Page) -> None:
    """Largest first, with share and hottest line, which stays text; the answer stands above."""
    rows = [line.split("\t") for line in shown.locator("#rows tbody").inner_text().splitlines() if "%\t" in line]
    shares = [int(float(share.split()[0])) for _, share, *_ in rows]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=len(shares))
    assert shown.locator(".bar button").count() == len(rows)
    assert HOSTILE in shown.locator("#rows").inner_text()
    assert "owned" not in shown.title()
    expect(shown.locator("#answer")).to_contain_text("Held back by waiting for a batch")


def test_a_box_of_the_flame_graph_grows(shown: Page) -> None:
    """Stacks are merged from the user's line on; a box that is chosen is as wide as the graph; its root leads back."""
    boxes = shown.locator(".flame div")
    assert boxes.all_inner_texts() == [
        "all",
        "__getitem__ (/home/me/data.py:7)",
        "decode (kit.py:1)",
        "read (/kit.py:2)",
    ]
    whole, _, decode, _ = [box.bounding_box() for box in boxes.all()]
    assert whole is not None
    assert decode is not None
    assert decode["width"] == pytest.approx(whole["width"] / 2, rel=0.02)
    boxes.nth(2).click()
    expect(boxes).to_have_count(3)
    assert re.search(r": 50\s%", shown.locator("#flames .readout").inner_text())
    boxes.first.press("Enter")
    expect(boxes).to_have_count(4)


def test_the_time_line_zooms_and_moves(shown: Page) -> None:
    """By keyboard and wheel: every process has a lane, and the axis says what is shown."""
    line = shown.locator("svg")
    texts = line.locator("text")
    assert {"loop", "worker 0", "worker 1"} <= set(texts.all_text_contents())
    last = float(texts.last.inner_html().split()[0])
    line.press("+")
    assert float(texts.last.inner_html().split()[0]) == pytest.approx(0.85 * last, rel=0.01)
    line.press("ArrowRight")
    assert float(texts.last.inner_html().split()[0]) == pytest.approx(0.99 * last, rel=0.01)
    shown.get_by_role("button", name="A slow step").click()
    assert texts.nth(len(texts.all()) - 5).inner_html() == "0.0 ms"


def test_a_phone_is_wide_enough(shown: Page) -> None:
    """Nothing but the table, which scrolls within itself, is wider than the screen."""
    shown.set_viewport_size({"width": 360, "height": 800})
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
