"""A suite: one question, the slice of axes that answers it, and the charts that show the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness import registry
from harness.errors import InputError, expected_one_of

MAIN = "loader"
"""The suite that ``make sweep`` runs by itself: a machine's main numbers."""
CALIBRATION = "calibration"
"""The suite that asks about feedrate and not about a machine: its cells are no settings to choose from."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One file under ``suites/`` holds one of these as ``SUITE``."""

    question: str
    """What a reader wants to know, ending in a question mark."""
    charts: tuple[str, ...]
    """Names of ``harness.charts``, in the order of its page."""
    slices: tuple[dict[str, Any], ...] = ()
    """Axis to values, as in matrix.yaml; used where matrix.yaml does not name the suite."""
    budget: str | None = None
    """Wall clock that its own slices take, such as 10m; counts where ``SUITE=`` names it and nothing else does."""


def load(name: str) -> Suite:
    """Load a suite by its file's name.

    Raises:
        InputError: there is no such file, or it holds no suite.
    """
    if name not in registry.names("suites"):
        raise InputError(f"suites: unknown suite '{name}'; {expected_one_of(name, registry.names('suites'))}")
    suite = getattr(registry.load("suites", name), "SUITE", None)
    if not isinstance(suite, Suite):
        raise InputError(f"suites/{name}.py: holds no SUITE; expected SUITE = Suite(question=…, charts=…)")
    return suite
