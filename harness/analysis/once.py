"""What is worked out of a frame is worked out once: charts, tables and sentences ask the same of the same records.

Frames are told apart by identity: neither one that was asked about nor an answer may be changed in place. An answer
lives as long as the frame that it is about, which it must therefore not hold.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import pandas as pd

Found = TypeVar("Found")


def once(find: Callable[[pd.DataFrame], Found]) -> Callable[[pd.DataFrame], Found]:
    """Let a function of one frame remember its answers.

    Args:
        find: what it finds must depend on the frame alone.

    Returns:
        The same function; who asks again of the same frame gets the same object.
    """
    known: dict[int, tuple[weakref.ref[pd.DataFrame], Found]] = {}

    @wraps(find)
    def remembered(frame: pd.DataFrame) -> Found:
        place = id(frame)
        if place not in known:
            found = find(frame)
            known[place] = weakref.ref(frame, lambda _: known.pop(place, None)), found
        return known[place][1]

    return remembered
