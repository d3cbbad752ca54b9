"""A function applied to a stream of items by all cores, in order and with bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

LOOK_AHEAD = 2
"""Items that wait or are worked on, for each core: all that is held in memory, however many there are."""


def ahead(function: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Apply a function that lets go of Python's lock, such as a compressor, on all cores this process may use.

    Args:
        function: called in threads.
        items: drawn in the calling thread, ``LOOK_AHEAD`` a core ahead of what is asked for.

    Yields:
        What the function made of each item, in the items' order.
    """
    cores = len(os.sched_getaffinity(0))
    waiting: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(cores)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > LOOK_AHEAD * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
