"""How fast other runs of a machine were at the same settings."""

from __future__ import annotations

import math
from typing import Any

from feedrate.analysis.summary import EMULATED
from feedrate.questions.suites.other_runs import between


def cells(run: str, rates: dict[str, float], machine: str = "m", data: str = "d", ran: str = "load") -> dict[str, Any]:
    """A run's file as far as it is read: a throughput by cell."""
    one = {"data_hash": {"values": [data], "codes": 0}, "ran": {"values": [ran], "codes": 0}}
    logs = [math.log(rate) for rate in rates.values()]
    about = {"run": run, "machine": machine, "device": "cpu"}
    return {"about": about, "cell": [*rates], "dims": one, "logs": {"mean": logs}}


def test_other_runs_of_the_same_machine_speak() -> None:
    """Their mean ratio at shared settings; other machines, data and emulated steps say nothing of it."""
    mine, rates = cells("mine", {"a": 100.0, "b": 400.0, "c": 50.0}), {"a": 150.0, "b": 600.0, "z": 1.0}
    others = [cells("x", rates, machine="n"), cells("y", rates, data="e"), cells("z", rates, ran=EMULATED)]
    assert between("mine", [mine, *others, cells("few", {"a": 150.0})]) == ""
    fast, slow = cells("fast", rates), cells("slow", {"a": 80.0, "c": 40.0})
    told = between("mine", [mine, fast, *others, slow])
    assert told.startswith("2 other runs of this machine: 0.80× to 1.5× as fast at the same settings.")
    assert between("mine", [mine, fast]).startswith("1 other run of this machine: 1.5× as fast at")
    assert between("none", [mine, fast]) == ""
