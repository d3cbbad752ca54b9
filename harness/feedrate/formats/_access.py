"""What every format needs around its library: one handle a process, and an error that says what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from feedrate.schema.errors import DataError

Handle = TypeVar("Handle")


class PerProcess(Generic[Handle]):
    """A handle that is opened at its first use in each process, and is left out of a pickle.

    One that was inherited by a fork is dropped unused. It closes when its owner is dropped, as handles do.
    """

    def __init__(self, opener: Callable[..., Handle], *arguments: Any) -> None:
        """Remember how to open it.

        Args:
            opener: opens the handle; a function of a module, so that it can be pickled.
            arguments: what it is called with.
        """
        self._opener = opener
        self._arguments = arguments
        self._pid = -1
        self._handle: Handle | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return PerProcess, (self._opener, *self._arguments)

    def __call__(self) -> Handle:
        """Give this process' handle."""
        handle = self._handle
        if handle is not None and self._pid == os.getpid():
            return handle
        self._handle = None  # before the next is opened: some libraries refuse to open a file twice
        self._handle = self._opener(*self._arguments)
        self._pid = os.getpid()
        return self._handle


def damaged(path: Path, problem: str, root: Path, index: int | None = None) -> DataError:
    """Make the error for packed data that cannot be used.

    Args:
        path: the file.
        problem: what came, and what was expected.
        root: the packed folder, to be deleted.
        index: of the sample, where one is known.
    """
    sample = "" if index is None else f"sample {index}: "
    return DataError(f"{path}: {sample}{problem}; delete {root} and run again")
