"""What the sections of a bench share: how a figure is judged, where they write, jobs in forked children."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from feedrate.analysis.blocks import half_width
from feedrate.schema.axes import AXES, Value, applicable
from feedrate.schema.errors import TrialError
from feedrate.schema.words import plural
from feedrate.store.bench_record import TunedWorkload, WatchedScript, WitnessedTrial
from feedrate.sweep.launcher import Template, Watch

_TIMEOUT_S = 120.0


class Figure(NamedTuple):
    """One figure that feedrate promises of itself: a ``Promise`` that does not know its section yet."""

    what: str
    target: str
    measured: str
    met: bool | None
    """None: it cannot be measured on this machine, and ``measured`` says why."""


def judge(
    what: str,
    bound: str,
    values: Sequence[float],
    *,
    digits: int,
    unit: str = "",
    counted: str = "",
    note: str = "",
) -> Figure:
    """Hold the median of some values, one a round, against a bound: ``≤ 50 ms``, ``≥ 0.9``, in the values' own unit.

    Measured is then ``52 ms (48–61, n = 25 loads)`` and the note.
    """
    sign, number, *_ = bound.replace(",", "").replace("×", "").split()
    median = statistics.median(values)
    n = plural(len(values), counted) if counted else str(len(values))
    measured = f"{median:.{digits}f}{unit} ({min(values):.{digits}f}–{max(values):.{digits}f}, n = {n}){note}"
    return Figure(what, bound, measured, median <= float(number) if sign == "≤" else median >= float(number))


def judge_ratio(what: str, most: float, ratios: Sequence[float], counted: str) -> Figure:
    """Hold paired ratios below a limit, by the Student-t interval of the mean of their logs."""
    logs = np.log(ratios)
    middle, half = float(logs.mean()), float(half_width(logs.std(ddof=1), len(logs)))
    lo, hi = np.exp(middle - half), np.exp(middle + half)
    measured = f"{np.exp(middle):.4f} ({lo:.4f}–{hi:.4f}, n = {len(logs)} {counted})"
    return Figure(what, f"95 % interval below {most:g}", measured, bool(hi < most))


def seconds(action: Callable[[], object]) -> float:
    """Take the time of an action."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def cell(device: str, **axes: Value) -> dict[str, Value]:
    """Make a cell of the axes that apply; what is not named stands at its default."""
    return applicable({axis.name: axis.default for axis in AXES} | axes, device)[0]


@dataclass(frozen=True, slots=True)
class Session:
    """A bench that is under way."""

    console: Console
    folder: Path
    """Temporary: packed samples, a sweep's results, its site."""
    results: Path
    """Where runs are read from."""
    device: str
    """cpu or cuda."""
    machine_id: str
    witnessed: list[WitnessedTrial] = field(default_factory=list)
    """Trials beside an external clock; the section accuracy adds them."""
    scripts: list[WatchedScript] = field(default_factory=list)
    """Scripts that keep a clock of their own; the section scripts adds them."""
    tuned: list[TunedWorkload] = field(default_factory=list)
    """Workloads that tuners searched; the section tuning adds them."""

    def ask(
        self,
        template: Template,
        kind: str,
        cell: Mapping[str, Value],
        watch: Watch = lambda *_: None,
        **more: Any,
    ) -> dict[str, Any]:
        """Have a forked child do a job and return its result."""
        job = {"kind": kind, "device": self.device, "cell": dict(cell), "data_root": str(self.folder / "data"), **more}
        answer = template.run(json.dumps(job), timeout_s=_TIMEOUT_S, watch=watch)
        if answer.outcome != "ok":
            raise TrialError(f"bench: a trial ended with {answer.outcome}: {answer.kind}: {answer.message}")
        return answer.result
