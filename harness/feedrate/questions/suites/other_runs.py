"""How fast other runs of a machine were at the settings of a run: what the intervals of one run cannot know.

A virtual machine may move to another host, clocks and neighbours change from day to day. All repetitions of a run share
them, so its intervals do not cover them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from feedrate.analysis.machines import SAME_IN_BOTH
from feedrate.analysis.summary import EMULATED
from feedrate.questions.explore.run_files import column
from feedrate.schema import words

FAR = 1.25
"""Ratio of the speeds of two runs from which on a speed says little of the machine."""
LEAST = 2
"""Settings that two runs must share for their mean ratio to say something."""


def between(run_id: str, files: Iterable[Mapping[str, Any]]) -> str:
    """Say how fast the other runs of a machine and device were, from the files of all runs (``run_file``).

    Emulated steps last as long on any day and are left out; so are settings that read other data.
    """
    runs = {file["about"]["run"]: file for file in files}
    if run_id not in runs:
        return ""
    where, here = _where(runs[run_id]), _logs(runs[run_id])
    ratios = []
    for other, file in runs.items():
        if other == run_id or _where(file) != where:
            continue
        there = _logs(file)
        if len(shared := here.keys() & there.keys()) >= LEAST:
            ratios.append(math.exp(fmean(there[setting] - here[setting] for setting in shared)))
    if not ratios:
        return ""
    least, most = min(ratios), max(ratios)
    rate = words.times(least) if len(ratios) == 1 else f"{words.times(least)} to {words.times(most)}"
    advice = ": cite ratios, not speeds" if least < 1 / FAR or most > FAR else ""
    return (
        f"{words.plural(len(ratios), 'other run')} of this machine: {rate} as fast at the same settings. Intervals "
        f"cover this run alone{advice}."
    )


def _where(file: Mapping[str, Any]) -> tuple[str, str]:
    return file["about"]["machine"], file["about"]["device"]


def _logs(file: Mapping[str, Any]) -> dict[tuple[Any, ...], float]:
    """Logs of throughput by setting and what must be the same in both, of all but emulated steps."""
    same = zip(*(column(file, name) for name in SAME_IN_BOTH), strict=True)
    of_cell = zip(file["cell"], same, column(file, "ran"), file["logs"]["mean"], strict=True)
    return {(cell, *alike): mean for cell, alike, ran, mean in of_cell if mean is not None and ran != EMULATED}
