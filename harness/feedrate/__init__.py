"""feedrate: how fast can a machine feed its accelerator, and what holds it back?"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

__version__ = "0.2.0"
__all__ = ["watch"]
_Batch = TypeVar("_Batch")


def watch(iterable: Iterable[_Batch]) -> Iterable[_Batch]:
    """Have ``feedrate run`` time an iterable of batches that is no DataLoader, such as DALI's, SPDL's or a generator.

    Args:
        iterable: gives a batch a step: ``for batch in feedrate.watch(loader):``.

    Returns:
        The same batches; without ``feedrate run`` the iterable itself.
    """
    if not os.environ.get("FEEDRATE_RUN"):
        return iterable
    try:
        from _feedrate_hook import Watched
    except ImportError:  # Python was started without the hook (-I, -E, -S)
        return iterable
    watched: Iterable[_Batch] = Watched(iterable)
    return watched
