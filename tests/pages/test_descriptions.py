"""Machines and durations in words."""

from __future__ import annotations

from typing import Any

import pytest

from feedrate.machine.identity import Machine
from feedrate.pages import descriptions


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"cores_logical": 2, "cores_physical": 2}, "CPU, 2 cores"),
        ({"cores_logical": 16, "cores_physical": 8}, "CPU, 16 hardware threads"),
        ({"cores_logical": 4, "cores_physical": None, "cpu_quota_cores": 1.5}, "CPU, 4 cores limited to 1.5"),
        ({"gpu_name": "A100", "gpu_count": 2}, "2 × A100, CPU, 1 core"),
        ({"gpu_name": "A100 + T4", "gpu_count": 2}, "A100 + T4, CPU, 1 core"),
    ],
)
def test_a_machine_is_named_by_what_it_has(facts: dict[str, Any], name: str) -> None:
    """Threads are no cores, and two GPUs of two kinds are not two of both."""
    bare = dict.fromkeys(Machine.model_fields) | {"cpu_model": "CPU", "cores_logical": 1, "gpu_count": 0}
    assert descriptions.name_of(Machine.model_construct(**(bare | facts))) == name


@pytest.mark.parametrize(("end", "text"), [("00:00:48", "48 s"), ("00:12:20", "12 min"), ("07:12:00", "7 h 12 min")])
def test_hours_are_hours(end: str, text: str) -> None:
    """A run's duration is written in the unit that suits it."""
    assert descriptions.minutes("2026-01-01T00:00:00+00:00", f"2026-01-01T{end}+00:00") == text
