"""Every error that a user can meet.

A message says where, what came, what was expected and what to do next; the exit status says whose turn it is
(2: the input must change, 1: the run failed). The command line prints the message and no traceback.
"""

from __future__ import annotations

from collections.abc import Iterable


class FeedrateError(Exception):
    """A run that failed for a reason that can be named."""

    exit_status = 1


class InputError(FeedrateError):
    """Input that cannot be used: a matrix, an option, a folder, a file."""

    exit_status = 2


class EnvironmentFault(FeedrateError):
    """The machine did not do what was asked of it: disk full, folder not writable, a driver that disagrees."""

    exit_status = 2


class DataError(FeedrateError):
    """Packed samples that are damaged, incomplete or of another version."""


class TrialError(FeedrateError):
    """The machinery that runs trials broke (never a trial's own failure: that is a row)."""


def expected_one_of(name: object, options: Iterable[object]) -> str:
    """Say which names are valid, and which one was meant: ``expected one of lmdb, png (did you mean 'png'?)``."""
    import difflib  # nobody waits for it who makes no mistake

    names = sorted(str(option) for option in options)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    return f"expected one of {', '.join(names)}{hint}"
