"""Figures that need a browser: without one nothing is judged, and a page that fails in it has missed them."""

from __future__ import annotations

from collections.abc import Callable

from harness.bench import browsed
from harness.bench_record import Promise
from harness.errors import EnvironmentFault, FeedrateError

Look = Callable[[str], list[Promise]]
"""Where Chromium is → what was seen with it."""


def take(section: str, what: str, target: str, look: Look) -> list[Promise]:
    """Take figures with a browser.

    Args:
        section: of the bench.
        what: the figures, in words.
        target: of all of them.
        look: takes them.
    """

    def instead(measured: str, *, met: bool | None) -> list[Promise]:
        return [Promise(section=section, what=what, target=target, measured=measured, met=met)]

    if (chromium := browsed.browser_path()) is None:
        return instead(browsed.MISSING, met=None)
    try:
        return look(chromium)
    except EnvironmentFault as error:
        return instead(str(error), met=None)
    except FeedrateError as error:
        return instead(str(error), met=False)
