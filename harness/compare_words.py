"""Ratios of two runs in numbers and as bars, the same in every part of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.analysis.machines import Overall
from harness.charts import _words as words
from harness.report_claims import bar
from harness.report_parts import Cell

KINDS = {
    "train": "real training",
    "emulated": "before an emulated step",
    "load": "loading alone",
    "copy": "copying alone",
    "compute": "the step alone",
}
"""What a cell runs, in words: ``compared.KINDS``."""
Row = Mapping[str, Any]


def estimate(ratio: float, lo: float, hi: float, none: str, n: str = "") -> str:
    """Write a ratio with its interval: ``1.62× (1.55–1.70, 8 blocks)``.

    Args:
        ratio: B ÷ A.
        lo: lower end of its interval; NaN where there is none.
        hi: upper end.
        none: what is said where there is none.
        n: what it rests on, where no column says so.
    """
    interval = f"{words.number(lo)}–{words.number(hi)}" if words.known(lo) and words.known(hi) else none
    return f"{words.number(ratio)}× ({', '.join(filter(None, (interval, n)))})"


def drawn(row: Row | Overall, none: str, reach: float, colour: str = "") -> tuple[Cell, Cell]:
    """Write a ratio with its interval, in numbers and as a bar.

    Args:
        row: with ``ratio``, ``lo`` and ``hi``.
        none: what is said where there is no interval.
        reach: the ratio at which the bar ends.
        colour: of the bar.
    """
    ratio, lo, hi = (row.ratio, row.lo, row.hi) if isinstance(row, Overall) else (row["ratio"], row["lo"], row["hi"])
    return Cell(estimate(ratio, lo, hi, none)), Cell(bar(ratio, lo, hi, reach), colour, bar=True)
