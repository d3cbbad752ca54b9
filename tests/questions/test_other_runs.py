"""How fast other runs of a machine were at the same settings."""

from __future__ import annotations

import math
from typing import Any

from feedrate.analysis.summary import EMULATED
from feedrate.questions.suites.other_runs import between


def cells(run: str, rates: dict[str, float], machine: str = "m", **given: str) -> dict[str, Any]:
    """A run's file as far as it is read: a throughput by cell."""
    values = {"protocol_version": "3", "workload_version": "1", "data_hash": "d", "ran": "load"} | given
    one = {name: {"values": [value], "codes": 0} for name, value in values.items()}
    logs = [math.log(rate) for rate in rates.values()]
    about = {"run": run, "machine": machine, "device": "cpu"}
    return {"about": about, "cell": [*rates], "dims": one, "logs": {"mean": logs}}


def test_other_runs_of_the_same_machine_speak() -> None:
    """Their mean ratio at shared settings; other machines, data, methods and emulated steps say nothing of it."""
    mine, rates = cells("mine", {"a": 100.0, "b": 400.0, "c": 50.0}), {"a": 150.0, "b": 600.0, "z": 1.0}
    others = [cells("x", rates, machine="n"), cells("y", rates, data_hash="e"), cells("z", rates, ran=EMULATED)]
    others += [cells("older", rates, protocol_version="2"), cells("model", rates, workload_version="2")]
    assert between("mine", [mine, *others, cells("few", {"a": 150.0})]) == ""
    fast, slow = cells("fast", rates), cells("slow", {"a": 80.0, "c": 40.0})
    told = between("mine", [mine, fast, *others, slow])
    assert told.startswith("2 other runs of this machine: 0.80× to 1.5× as fast at the same settings.")
    assert told.endswith("cite ratios, not speeds.")
    assert between("mine", [mine, cells("near", {"a": 90.0, "c": 50.0})]).endswith("cover this run alone.")
    assert between("mine", [mine, fast]).startswith("1 other run of this machine: 1.5× as fast at")
    assert between("none", [mine, fast]) == ""
