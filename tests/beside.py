"""Times beside times: how many times as long as something else a thing takes, on any machine, however busy it is."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import suppress

TURNS = 6


def times(asked: Callable[[], float], known: Callable[[], float], most: float) -> float:
    """Take turns, and compare the quickest of each: other work of the machine may hold up some of them.

    Args:
        asked: does what is asked about, and says how long that took.
        known: likewise what it is held against, in the same unit; the first time it may find everything cold.
        most: what the ratio may be; once it is not more there are no further turns.

    Returns:
        How many times as long as the other it takes.
    """
    beside, took = [known(), known()], [asked()]
    while len(took) < TURNS and min(took) / min(beside) > most:
        beside.append(known())
        took.append(asked())
    print(f"{min(took) / min(beside):.2f} times: {took} beside {beside}")
    return min(took) / min(beside)


def seconds(work: Callable[[], object]) -> float:
    """Do something and say how many seconds that took."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def tried(test: Callable[..., None]) -> Callable[..., None]:
    """Give a test of real times a few tries: other work may hold up one of them, and a defect fails the last, too."""

    @functools.wraps(test)
    def trying(*given: object, **named: object) -> None:
        for _ in range(TURNS - 1):
            with suppress(Exception):
                return test(*given, **named)
        return test(*given, **named)

    return trying
