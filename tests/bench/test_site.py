"""What the website costs: its build is watched to its end, its pages are seen by a browser."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside import tried

from feedrate.bench import site
from feedrate.bench.session import Ended
from feedrate.bench.site import PageCost
from feedrate.schema.errors import FeedrateError

pytestmark = pytest.mark.slow

PAGE = '<!doctype html><link rel="icon" href="data:,"><p>text</p>'
CHART = '<div class="fr-chart" tabindex="0">a chart</div>'


def event(name: str, at: int, **more: Any) -> dict[str, Any]:
    """An event of a trace, at a millisecond."""
    return {"name": name, "pid": 1, "tid": 1, "ts": 1000 * at, **more}


def task(start: int, took: int, thread: int = 1) -> dict[str, Any]:
    """A task of the page, in milliseconds."""
    return event("ThreadControllerImpl::RunTask", start, dur=1000 * took, tid=thread)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is."""
    executable = site.browser_path()
    if executable is None:
        pytest.fail(site.MISSING)
    return executable


def cost(chromium: str, folder: Path, html: str) -> PageCost:
    """What a page costs, loaded slowly once."""
    (folder / "index.html").write_text(html, encoding="utf-8")
    with site.chromium(chromium, folder) as (browser, origin):
        return site.page_cost(browser, origin, "index.html", 1)


def test_only_what_is_beyond_fifty_milliseconds_after_the_first_paint_blocks() -> None:
    """Tasks before the paint are free, the one that it falls into counts from there, and each has its 50 ms."""
    tasks = [task(0, 400), task(900, 300), task(2000, 50), task(3000, 51), task(4000, 250), task(5000, 900, thread=2)]
    assert site.blocking_ms([event("firstContentfulPaint", 1000), *tasks]) == 150 + 0 + 1 + 200
    assert site.blocking_ms([event("firstContentfulPaint", 1160), task(900, 300)]) == 0


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
    made: dict[str, bytes] = {}
    for name in ("late.txt", "last.txt", "more.txt"):
        made[name] = np.random.default_rng(len(made)).bytes(10_000).hex().encode()
        (tmp_path / name).write_bytes(made[name])
    seen = cost(chromium, tmp_path, html)
    before, late, last, more = (len(gzip.compress(body, 6)) for body in (html.encode(), *made.values()))
    assert seen.before_bytes == before + late + last
    assert seen.after_bytes == before + late + last + more
    assert 0 < seen.paints_ms[0] < 5000


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        (f"{PAGE}{CHART}", "index.html failed in the browser: .*[Tt]imeout"),
        (f"{PAGE}<script>setInterval(() => fetch('index.html?' + Math.random()), 100)</script>", "index.html failed"),
    ],
)
def test_a_page_that_fails_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chromium: str, html: str, problem: str
) -> None:
    """A chart that is not drawn, a page that never rests: it is said which page, and nothing hangs."""
    monkeypatch.setattr(site, "_MOST_MS", 500)
    with pytest.raises(FeedrateError, match=problem):
        cost(chromium, tmp_path, html)


def test_a_build_is_watched_to_its_end(tmp_path: Path) -> None:
    """The site is built by the command that people type, and its memory is seen; a build that fails says why."""
    built = site.build_site(tmp_path / "results", tmp_path / "build")
    assert (tmp_path / "build" / "site" / "index.html").is_file()
    assert built.took_s > 1
    assert 5e7 < (built.peak_bytes or 0) < 4e9
    precious = tmp_path / "mine" / "site" / "precious.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    with pytest.raises(FeedrateError, match=r"the site was not built.*did not make"):
        site.build_site(tmp_path / "results", tmp_path / "mine")


def page(path: str, **changed: object) -> PageCost:
    """A page that meets every target."""
    loads = {"paints_ms": (400.0, 480.0, 900.0), "blocks_ms": (0.0, 100.0, 250.0)}
    return PageCost(path, **{"before_bytes": 100_000, "after_bytes": 400_000, **loads, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("missed", "changed", "measured"),
    [
        (None, {"before_bytes": 119_000}, "119 kB (b.html; lightest 100 kB, n = 2 pages)"),
        (None, {"paints_ms": (300.0, 490.0, 5000.0)}, "490 ms (300–5000, n = 3 loads) of b.html; best page 480 ms"),
        (0, {"before_bytes": 121_000}, "121 kB (b.html"),
        (1, {"after_bytes": 501_000}, "501 kB (b.html"),
        (2, {"paints_ms": (501.0, 501.0, 1.0)}, "501 ms (1–501, n = 3 loads) of b.html"),
        (3, {"blocks_ms": (201.0, 202.0, 1.0)}, "201 ms"),
    ],
)
def test_the_worst_page_decides_by_its_median(missed: int | None, changed: dict[str, object], measured: str) -> None:
    """One page too heavy, too late or too busy misses the target, and is named; one bad load decides nothing."""
    figures = list(site.judge_pages([page("a.html"), page("b.html", **changed)], "results"))
    assert [figure.met for figure in figures] == [at != missed for at in range(4)]
    assert any(measured in figure.measured for figure in figures)


@pytest.mark.parametrize(("took_s", "peak", "met"), [(9.9, 1.9e9, [True, True]), (10.1, 2.1e9, [False, False])])
def test_a_build_is_judged_by_time_and_memory(took_s: float, peak: float, met: list[bool]) -> None:
    """Both have a target of their own."""
    assert [figure.met for figure in site.judge_build("runs", Ended(0, took_s, int(peak), "", ""))] == met
