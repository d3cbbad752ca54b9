"""What ``make bench`` found on one machine: one frozen record, written as JSON beside the machine's runs."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from feedrate.machine.identity import Machine, Software
from feedrate.schema.axes import Value

SECTIONS = ("speed", "storage", "accuracy", "instrumentation", "statistics", "calibration", "files", "site")
"""What can be measured alone, in the order in which it is."""

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

    @property
    def name(self) -> str:
        """The record's file name without its ending: the moment at which it began."""
        return self.started_at.strftime("%Y%m%dT%H%M%SZ")

    def section(self, name: str) -> list[Promise]:
        """The promises of one section."""
        return [promise for promise in self.promises if promise.section == name]
