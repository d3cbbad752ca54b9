"""What a page costs its reader: every byte, the first paint, and what a slow CPU makes of busy scripts."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside import tried

from harness.bench import browsed
from harness.errors import EnvironmentFault, FeedrateError

PAGE = '<!doctype html><link rel="icon" href="data:,"><p>text</p>'
CHART = '<div class="fr-chart" tabindex="0">a chart</div>'
WORK = "let sum = 0; for (let each = 0; each < 6e7; each += 1) sum = (sum * 31 + each) % 1000003; window.sum = sum;"
BUSY = f"{PAGE}<script>setTimeout(() => {{ {WORK} }}, 200)</script>"
"""A page that rests after loading for less than it must, and then works for some tenths of a second."""


def test_only_what_is_beyond_fifty_milliseconds_after_the_first_paint_blocks() -> None:
    """Tasks before the paint are free, the one that it falls into counts from there, and each has its 50 ms."""
    tasks = [(0, 400), (900, 300), (2000, 50), (3000, 51), (4000, 250)]
    other = {**_event(5000, 900), "tid": 2}
    assert browsed.blocking_ms([_painted(1000), other, *(_event(*task) for task in tasks)]) == 150 + 0 + 1 + 200
    assert browsed.blocking_ms([_painted(1160), _event(900, 300)]) == 0


def _event(start: int, took: int) -> dict[str, Any]:
    """A task of the page's main thread, in milliseconds."""
    return {"name": "ThreadControllerImpl::RunTask", "pid": 1, "tid": 1, "ts": 1000 * start, "dur": 1000 * took}


def _painted(at: int) -> dict[str, Any]:
    return {"name": "firstContentfulPaint", "pid": 1, "tid": 1, "ts": 1000 * at}


@pytest.mark.slow
@tried
def test_bytes_are_those_of_every_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chromium: str) -> None:
    """Compressed, each address once, until the page rests: also what is asked for late, before and after a touch."""
    monkeypatch.setattr(browsed, "LOADS", 1)
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
    (found,) = browsed.costs(tmp_path, ["index.html"], chromium)
    before, late, last, more = (len(gzip.compress(body, 6)) for body in (html.encode(), *made.values()))
    assert found.before_bytes == before + late + last
    assert found.after_bytes == before + late + last + more
    assert 0 < found.paint_ms < 5000


@pytest.mark.slow
@tried
def test_work_takes_four_times_as_long_on_the_slow_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chromium: str
) -> None:
    """Work that is done late blocks, for longer than at full speed: four times, less what other work holds up."""
    monkeypatch.setattr(browsed, "LOADS", 1)
    (tmp_path / "index.html").write_text(BUSY, encoding="utf-8")
    took: dict[int, list[float]] = {4: [], 1: []}
    for _ in range(3):
        for slower, blocked in took.items():
            monkeypatch.setattr(browsed, "SLOWER", slower)
            (found,) = browsed.costs(tmp_path, ["index.html"], chromium)
            blocked += [ms + 50 for ms in found.blocks_ms]
    assert min(took[1]) > 50
    assert 1.6 < min(took[4]) / min(took[1]) < 6


@pytest.mark.slow
@tried
def test_layout_blocks_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chromium: str) -> None:
    """A page without a script that does anything long, but whose change makes much to lay out, is busy."""
    monkeypatch.setattr(browsed, "LOADS", 2)
    rows = "<div hidden>" + "<table><tr><td>some text<td>more text</table>" * 6_000 + "</div>"
    show = "setTimeout(() => { document.querySelector('div').hidden = false; }, 200)"
    (tmp_path / "index.html").write_text(f"{PAGE}{rows}<script>{show}</script>", encoding="utf-8")
    (found,) = browsed.costs(tmp_path, ["index.html"], chromium)
    (tmp_path / "index.html").write_text(f"{PAGE}{rows}", encoding="utf-8")
    (still,) = browsed.costs(tmp_path, ["index.html"], chromium)
    assert min(found.blocks_ms) > 2 * min(still.blocks_ms)


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
    monkeypatch.setattr(browsed, "LOADS", 1)
    monkeypatch.setattr(browsed, "_MOST_MS", 4000)
    (tmp_path / "index.html").write_text(html, encoding="utf-8")

    @tried
    def failing() -> None:
        with pytest.raises(FeedrateError, match=said):
            browsed.costs(tmp_path, ["index.html"], chromium)

    failing()


@pytest.mark.slow
def test_a_browser_that_does_not_start_is_said(tmp_path: Path) -> None:
    """It is the machine's fault, not the page's, and the message names the program."""
    with pytest.raises(EnvironmentFault, match="/bin/false did not start"):
        browsed.costs(tmp_path, ["index.html"], "/bin/false")
