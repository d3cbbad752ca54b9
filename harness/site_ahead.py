"""Pages, made in processes of their own while the caller makes others.

A page is a pure function of what it is given, so that the order does not matter. Processes are worth their
start (a second, and their memory) only where there is much to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from harness.hardware import usable_cores
from harness.pages import apart
from harness.pages.gathered import Shown

WORTH = 2_000
"""Trials of the runs that are shown in full, from which on processes are started."""
Given = ParamSpec("Given")
Made = TypeVar("Made")
Taken = TypeVar("Taken")


class Ahead:
    """What takes long, begun before it is needed."""

    def __init__(self, pool: ProcessPoolExecutor | None) -> None:
        self._pool = pool
        self._begun: list[Future[Any]] = []

    def begin(self, make: Callable[Given, Made], *given: Given.args, **more: Given.kwargs) -> Callable[[], Made]:
        """Begin to make something; without processes it is made when it is asked for.

        Args:
            make: a function of a module.
            given: what it is called with; runs go to a process as references.
            more: by name.

        Returns:
            Waits for it and gives it.
        """
        if not self._pool:
            return partial(make, *given, **more)
        self._begun.append(self._pool.submit(make, *given, **more))
        return self._begun[-1].result

    def finished(self) -> Iterator[Any]:
        """Give everything that was begun, each as soon as it is made; without processes nothing is made yet."""
        for begun in as_completed(self._begun):
            yield begun.result()

    def each(self, make: Callable[[Taken], Made], items: Iterable[Taken]) -> Iterator[Made]:
        """Do what ``map`` does, several at a time where there are processes."""
        return self._pool.map(make, items) if self._pool else map(make, items)


@contextmanager
def started(runs: Sequence[Shown]) -> Iterator[Ahead]:
    """Start processes where they are worth it.

    Args:
        runs: those that are shown in full.
    """
    if len(usable_cores()) < 2 or trials(runs) < WORTH:
        yield Ahead(None)
        return
    with apart.pool() as pool:
        try:
            yield Ahead(pool)
        finally:
            pool.shutdown(cancel_futures=True)


def trials(runs: Sequence[Shown]) -> int:
    """How many trials some runs have: what their pages cost."""
    return sum(sum(shown.manifest.outcomes.values()) for shown in runs)
