"""Long pages, made in processes of their own while the caller makes others.

A page is a pure function of its runs, so nothing is shared and the order does not matter. Processes are worth their
start (a second, and their memory) only where there is much to draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.hardware import usable_cores
from harness.pages import apart, claims, run, suites
from harness.pages.featured import Cast
from harness.pages.gathered import Shown
from harness.pages.markup import Page
from harness.pages.verdicts import Verdicts
from harness.store import StoredRun
from harness.suite import Suite

WORTH = 2_000
"""Trials of the runs that are shown in full, from which on processes are started."""
Question = tuple[str, str, Suite]
"""A suite's name, the path of its page, and what it holds."""


class Ahead:
    """Pages of suites and of runs, some of which are being made."""

    def __init__(self, pool: ProcessPoolExecutor | None, everyone: Cast, questions: Sequence[Question]) -> None:
        self._everyone = everyone
        self._made: dict[str, Future[Page]] = {}
        if not pool:
            return
        asked = [(question, everyone.of_suite(question[0])) for question in questions]
        for (name, path, content), runs in sorted(asked, key=lambda each: _trials(each[1]), reverse=True):
            self._made[path] = pool.submit(_suite, name, path, content, [shown.run for shown in runs])
        for shown in sorted(everyone.detailed, key=lambda shown: _trials([shown]), reverse=True):
            self._made[shown.page] = pool.submit(_run, shown.run)

    def suite(self, question: Question, told: Verdicts) -> Page:
        """Give a suite's page.

        Args:
            question: its name, its path and what it holds.
            told: what the runs say of the sources' claims.
        """
        name, path, content = question
        if path not in self._made:
            return suites.page(name, path, content, self._everyone.of_suite(name), told)
        page = self._made[path].result()
        return replace(page, body="\n".join([page.body, *claims.said(told, name, path)]))

    def run(self, shown: Shown) -> Page:
        """Give a run's page in full."""
        return self._made[shown.page].result() if shown.page in self._made else run.page(shown)


@contextmanager
def started(everyone: Cast, questions: Sequence[Question]) -> Iterator[Ahead]:
    """Begin to make the pages of suites and of runs in full.

    Args:
        everyone: all runs.
        questions: the suites that get a page.
    """
    if len(usable_cores()) < 2 or _trials(everyone.detailed) < WORTH:
        yield Ahead(None, everyone, questions)
        return
    with apart.pool() as pool:
        try:
            yield Ahead(pool, everyone, questions)
        finally:
            pool.shutdown(cancel_futures=True)


_held: dict[Path, Shown] = {}
"""Runs that this process has read: what is worked out of a run for one page serves the next."""


def _shown(stored: StoredRun) -> Shown:
    return _held.setdefault(stored.folder, Shown(stored))


def _suite(name: str, path: str, content: Suite, runs: Sequence[StoredRun]) -> Page:
    return suites.page(name, path, content, list(map(_shown, runs)))


def _run(stored: StoredRun) -> Page:
    """The last page that a process makes of a run: runs come after suites."""
    page = run.page(_shown(stored))
    del _held[stored.folder]
    return page


def _trials(runs: Sequence[Shown]) -> int:
    return sum(sum(shown.manifest.outcomes.values()) for shown in runs)
