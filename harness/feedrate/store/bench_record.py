"""What ``make bench`` found on one machine: one frozen record, written as JSON beside the machine's runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from statistics import geometric_mean, median
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from feedrate.machine.identity import Machine, Software
from feedrate.schema.axes import Value

SECTIONS = ("speed", "accuracy", "scripts", "account", "tuning", "calibration", "site")
"""What can be measured alone, in the order in which it is; records of earlier versions have others."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Promise(_Frozen):
    """One figure that feedrate promises of itself, and what was seen."""

    section: str
    what: str
    target: str
    measured: str
    """With spread and n, in words."""
    met: bool | None
    """None: it cannot be measured on this machine, and ``measured`` says why."""


class WitnessedTrial(_Frozen):
    """A trial of a planted cell beside an external clock."""

    cell_id: str
    cell: dict[str, Value]
    """The axes that apply."""
    repeat: int
    samples: Count
    """In the window."""
    wall_ns: Count
    """Of the window, by feedrate's clock."""
    witness_ns: Count
    """Of the window, by the external clock."""
    epoch_steps: Count
    """Steps in each epoch of the stretch of short epochs that follows."""
    epochs_samples: Count
    """In that stretch."""
    epochs_witness_ns: Count
    """Of the same stretch, by the external clock."""
    estimates: dict[str, Positive]
    """Estimator to samples a second."""

    @model_validator(mode="after")
    def _adds_up(self) -> WitnessedTrial:
        ours = self.estimates.get("wall_clock", math.nan)
        if not math.isclose(ours, self.samples * 1e9 / self.wall_ns, rel_tol=1e-9):
            raise ValueError(f"estimates.wall_clock is {ours}, and samples ÷ wall_ns is another number")
        return self


class WatchedScript(_Frozen):
    """A planted training script below ``feedrate run``, beside what its own clock says of the same steps."""

    costs: str
    """What its samples and its step do; scripts that differ in their workers alone have the same."""
    num_workers: int
    start_method: str | None
    """None without workers."""
    steps: Count
    steps_per_s: Positive
    script_steps_per_s: Positive
    wait_share: float
    script_wait_share: float
    hot_first: bool
    """Whether the hot line is the first of the lines that are shown."""
    hot_share: float
    """Of preparing, as sampled; 0 where the line was not seen."""
    script_hot_share: float
    predicted: dict[int, Positive]
    """Other number of workers to the steps a second that the pipeline model gives for it."""
    cause: str
    """The row of the account that holds it back, as feedrate says."""

    @property
    def pace_error_pct(self) -> float:
        """How far feedrate's pace is off."""
        return 100 * (self.steps_per_s / self.script_steps_per_s - 1)


class Told(_Frozen):
    """A share of the time as feedrate says it, and by the script's own clock."""

    said: float
    truth: float


class AccountedScript(_Frozen):
    """A script with time planted in rows of its account, beside what ``feedrate run`` said of it."""

    planted: dict[str, Positive]
    """Row to its milliseconds, of a step or of an epoch."""
    computes: bool
    """Whether the time is spent computing; else asleep."""
    num_workers: int
    rest_share: float
    """Of the wall clock, what is in no row."""
    largest: str
    """The largest row of the loops."""
    cause: str
    """The row that the script is held back by, as feedrate says."""
    rows: dict[str, Told]
    """Planted row to its share of the loops."""
    lines: dict[str, Told]
    """Planted row to its line's share of it; 0 where another line is named first."""


class PredictedPace(NamedTuple):
    """A script's pace with other workers: predicted from one run, and measured by the script in another."""

    costs: str
    seen: int
    """Workers of the run that the prediction rests on."""
    num_workers: int
    predicted: float
    measured: float

    @property
    def error_pct(self) -> float:
        """How far the prediction is off."""
        return 100 * (self.predicted / self.measured - 1)


def paces(scripts: Sequence[WatchedScript]) -> dict[tuple[str, int], float]:
    """Costs and workers to the pace of forked scripts by their own clock; of several that ran so, the median."""
    ran: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for script in scripts:
        if script.start_method != "spawn":
            ran[script.costs, script.num_workers].append(script.script_steps_per_s)
    return {setting: median(every) for setting, every in ran.items()}


def predictions(scripts: Sequence[WatchedScript]) -> list[PredictedPace]:
    """Pair each prediction with the forked script that ran with that number of workers."""
    usual, measured = [script for script in scripts if script.start_method != "spawn"], paces(scripts)
    return [
        PredictedPace(script.costs, script.num_workers, other, rate, measured[script.costs, other])
        for script in usual
        for other, rate in sorted(script.predicted.items())
        if (script.costs, other) in measured
    ]


class Advice(_Frozen):
    """What a tuner recommends."""

    setting: str
    took_s: Positive


class TunedWorkload(_Frozen):
    """A planted workload that was tuned, beside what its settings truly take."""

    costs: str
    """What its samples and its step do."""
    present: str
    """The settings that it began with."""
    settings: Count
    """That feedrate chose among."""
    trials: Count
    """That feedrate took."""
    bound_pct: float | None
    """How much faster the best setting is at most, as feedrate stated it; None where it stated nothing."""
    feedrate: Advice
    loadtune: Advice | None = None
    """What loadtune recommended; None where it was not asked."""
    stopped: Advice | None = None
    """What feedrate recommended where it was stopped within the time that loadtune took."""
    blocks: Count
    """In which the truth was measured."""
    steps_per_s: dict[str, tuple[Positive, ...]]
    """Setting to its true pace, block by block, of all that may be the best, those that are recommended, and the
    present one."""

    @model_validator(mode="after")
    def _measured(self) -> TunedWorkload:
        advice = [tuner for tuner in (self.feedrate, self.loadtune, self.stopped) if tuner]
        named = {self.present, *(tuner.setting for tuner in advice)}
        if missing := named - self.steps_per_s.keys():
            raise ValueError(f"steps_per_s lacks {', '.join(sorted(missing))}")
        if any(len(paces) != self.blocks for paces in self.steps_per_s.values()):
            raise ValueError(f"steps_per_s: expected {self.blocks} paces a setting, one a block")
        return self

    @property
    def paces(self) -> dict[str, float]:
        """Setting to the geometric mean of its pace."""
        return {setting: geometric_mean(paces) for setting, paces in self.steps_per_s.items()}


class BenchRecord(_Frozen):
    """One ``make bench``."""

    schema_version: Literal[1] = 1
    feedrate_version: str
    machine: Machine
    software: Software
    device: str
    """cpu or cuda."""
    started_at: datetime
    """UTC."""
    took_s: float
    sections: tuple[str, ...]
    """What was measured this time."""
    promises: tuple[Promise, ...]
    witnessed: tuple[WitnessedTrial, ...] = ()
    """Behind the figure of accuracy."""
    scripts: tuple[WatchedScript, ...] = ()
    """Behind the figures of scripts."""
    accounted: tuple[AccountedScript, ...] = ()
    """Behind the figures of the account."""
    tuned: tuple[TunedWorkload, ...] = ()
    """Behind the figures of tuning."""

    @property
    def name(self) -> str:
        """The record's file name without its ending: the moment at which it began."""
        return self.started_at.strftime("%Y%m%dT%H%M%SZ")

    def section(self, name: str) -> list[Promise]:
        """The promises of one section."""
        return [promise for promise in self.promises if promise.section == name]
