"""Figures that need a browser, where there is none or it fails."""

from __future__ import annotations

import shutil
from typing import NoReturn

import pytest

from harness.bench import browsed, with_browser
from harness.errors import EnvironmentFault, FeedrateError


def test_without_chromium_pages_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line to type is said, and nothing is met or missed."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (found,) = with_browser.take("site", "pages", "open", _never)
    assert (found.section, found.met) == ("site", None)
    assert "apt-get install chromium" in found.measured


def _never(_: str) -> NoReturn:
    raise AssertionError("there is no browser")


@pytest.mark.parametrize(("error", "met"), [(EnvironmentFault, None), (FeedrateError, False)])
def test_a_failing_browser_is_said(monkeypatch: pytest.MonkeyPatch, error: type[FeedrateError], met: bool) -> None:
    """One that does not start judges nothing; a page that fails in it has missed; neither ends the bench."""

    def fails(chromium: str) -> NoReturn:
        raise error(f"{chromium} says no")

    monkeypatch.setattr(browsed, "browser_path", lambda: "chromium")
    (found,) = with_browser.take("files", "pages", "open", fails)
    assert (found.section, found.met, found.measured) == ("files", met, "chromium says no")
