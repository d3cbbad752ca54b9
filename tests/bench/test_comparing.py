"""What a trace of the page Compare tells: when it drew, and for how long it answered nobody."""

from __future__ import annotations

from typing import Any

import pytest

from harness.bench import comparing
from harness.errors import FeedrateError

MARKS = {"given": 1000, "drawn": 1800, "explained": 2500}


def mark(name: str, at: int) -> dict[str, Any]:
    return {"name": f"fr-compare-{name}", "cat": "blink.user_timing", "pid": 1, "tid": 1, "ts": 1000 * at}


def task(start: int, took: int, thread: int = 1) -> dict[str, Any]:
    """A task of the page, in milliseconds."""
    return {
        "name": "ThreadControllerImpl::RunTask",
        "cat": "toplevel",
        "pid": 1,
        "tid": thread,
        "ts": 1000 * start,
        "dur": 1000 * took,
    }


def test_only_what_the_page_does_until_it_stands_holds_it_up() -> None:
    """Tasks of other threads, before the file and after the explanation count nothing; one that lasts on is whole."""
    marks = [mark(name, at) for name, at in MARKS.items()]
    others = [task(1100, 500, thread=2), task(200, 700), task(2600, 400)]
    shown = comparing.shown([*marks, *others, task(970, 60), task(1300, 42), task(1790, 20)])
    assert (shown.drawn_ms, shown.explained_ms, shown.longest_ms) == (800, 1500, 42)
    assert comparing.shown([*marks, *others, task(970, 90), task(1300, 42)]).longest_ms == 60
    assert comparing.shown([*marks, *others, task(2490, 90)]).longest_ms == 90
    assert comparing.shown([*marks, *others]).longest_ms == 0


def test_a_page_that_does_not_draw_is_said() -> None:
    """Without the mark of the first picture there is no figure."""
    with pytest.raises(FeedrateError, match=r"compare\.html does not say fr-compare-drawn"):
        comparing.shown([mark("given", 1000), mark("explained", 2500)])
