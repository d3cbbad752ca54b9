"""What a page costs its reader and how long it takes to answer, seen by a browser; what is said where there is none."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from beside import tried

from feedrate.bench import browser
from feedrate.schema.errors import EnvironmentFault, FeedrateError

PAGE = '<!doctype html><link rel="icon" href="data:,"><p>text</p>'
CHART = '<div class="fr-chart" tabindex="0">a chart</div>'
WORK = "let sum = 0; for (let each = 0; each < 6e7; each += 1) sum = (sum * 31 + each) % 1000003; window.sum = sum;"
BUSY = f"{PAGE}<script>setTimeout(() => {{ {WORK} }}, 200)</script>"
"""A page that rests after loading for less than it must, and then works for some tenths of a second."""


def event(name: str, at: int, **more: Any) -> dict[str, Any]:
    """An event of a trace, at a millisecond."""
    return {"name": name, "pid": 1, "tid": 1, "ts": 1000 * at, **more}


def task(start: int, took: int, thread: int = 1) -> dict[str, Any]:
    """A task of the page, in milliseconds."""
    return event("ThreadControllerImpl::RunTask", start, dur=1000 * took, tid=thread)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is."""
    executable = browser.browser_path()
    if executable is None:
        pytest.fail(browser.MISSING)
    return executable


def test_only_what_is_beyond_fifty_milliseconds_after_the_first_paint_blocks() -> None:
    """Tasks before the paint are free, the one that it falls into counts from there, and each has its 50 ms."""
    tasks = [task(0, 400), task(900, 300), task(2000, 50), task(3000, 51), task(4000, 250), task(5000, 900, thread=2)]
    assert browser.blocking_ms([event("firstContentfulPaint", 1000), *tasks]) == 150 + 0 + 1 + 200
    assert browser.blocking_ms([event("firstContentfulPaint", 1160), task(900, 300)]) == 0


def test_without_chromium_pages_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line to type is said, and nothing is met or missed."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (found,) = browser.with_browser("pages", "open", lambda _: pytest.fail("there is no browser"))
    assert found.met is None
    assert "apt-get install chromium" in found.measured


@pytest.mark.parametrize(("error", "met"), [(EnvironmentFault, None), (FeedrateError, False)])
def test_a_failing_browser_is_said(monkeypatch: pytest.MonkeyPatch, error: type[FeedrateError], met: bool) -> None:
    """One that does not start judges nothing; a page that fails in it has missed; neither ends the bench."""

    def fails(chromium: str) -> NoReturn:
        raise error(f"{chromium} says no")

    monkeypatch.setattr(browser, "browser_path", lambda: "chromium")
    assert browser.with_browser("pages", "open", fails) == [("pages", "open", "chromium says no", met)]


@pytest.mark.slow
@tried
def test_bytes_are_those_of_every_answer(tmp_path: Path, chromium: str) -> None:
    """Compressed, each address once, until the page rests: also what is asked for late, before and after a touch."""
    script = (
        "const read = (name) => fetch(name).then((answer) => answer.text());"
        "const again = () => { read('late.txt'); read('last.txt'); };"
        "setTimeout(() => read('late.txt').then(() => setTimeout(again, 50)), 50);"
        "document.querySelector('.fr-chart').addEventListener('focus', (event) => {"
        'event.target.innerHTML = \'<div class="fr-live"><svg width="9" height="9"></svg></div>\';'
        "setTimeout(() => read('more.txt'), 50); }, { once: true })"
    )
    html = f"{PAGE}{CHART}<script>{script}</script>"
    (tmp_path / "index.html").write_text(html, encoding="utf-8")
    made: dict[str, bytes] = {}
    for name in ("late.txt", "last.txt", "more.txt"):
        made[name] = np.random.default_rng(len(made)).bytes(10_000).hex().encode()
        (tmp_path / name).write_bytes(made[name])
    (found,) = browser.page_costs(tmp_path, ["index.html"], chromium, 1)
    before, late, last, more = (len(gzip.compress(body, 6)) for body in (html.encode(), *made.values()))
    assert found.before_bytes == before + late + last
    assert found.after_bytes == before + late + last + more
    assert 0 < found.paints_ms[0] < 5000


@pytest.mark.slow
@tried
def test_work_takes_four_times_as_long_on_the_slow_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chromium: str
) -> None:
    """Work that is done late blocks, for longer than at full speed: four times, less what other work holds up."""
    (tmp_path / "index.html").write_text(BUSY, encoding="utf-8")
    took: dict[int, list[float]] = {4: [], 1: []}
    for _ in range(3):
        for slower, blocked in took.items():
            monkeypatch.setattr(browser, "SLOWER", slower)
            (found,) = browser.page_costs(tmp_path, ["index.html"], chromium, 1)
            blocked += [ms + 50 for ms in found.blocks_ms]
    assert min(took[1]) > 50
    assert 1.6 < min(took[4]) / min(took[1]) < 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("html", "said"),
    [
        ('<!doctype html><link rel="icon" href="data:,">', "index.html paints nothing"),
        (f"{PAGE}{CHART}", "index.html failed in the browser: .*[Tt]imeout"),
        (f"{PAGE}<script>setInterval(() => fetch('index.html?' + Math.random()), 100)</script>", "does not stop"),
    ],
)
def test_a_page_that_fails_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chromium: str, html: str, said: str
) -> None:
    """Nothing painted, a chart that is not drawn, a page that never rests: it is said which page, and nothing hangs."""
    monkeypatch.setattr(browser, "_MOST_MS", 4000)
    (tmp_path / "index.html").write_text(html, encoding="utf-8")

    @tried
    def failing() -> None:
        with pytest.raises(FeedrateError, match=said):
            browser.page_costs(tmp_path, ["index.html"], chromium, 1)

    failing()


@pytest.mark.slow
def test_a_browser_that_does_not_start_is_said(tmp_path: Path) -> None:
    """It is the machine's fault, not the page's, and the message names the program."""
    with pytest.raises(EnvironmentFault, match="/bin/false did not start"):
        browser.page_costs(tmp_path, ["index.html"], "/bin/false")


@pytest.mark.slow
def test_every_change_of_a_filter_is_timed(sites: dict[str, Any], chromium: str) -> None:
    """Taking formats away from Explore and bringing them back; each takes some time, and less than a second."""
    took_ms = browser.filter_explore(sites["main"].folder, chromium)
    assert len(took_ms) == browser.CHANGES
    assert 0 < min(took_ms) < 1000
