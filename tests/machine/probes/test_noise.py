"""The rules of the flags, at their borders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.machine.probes.noise import SLOWED_BY, flags
from feedrate.schema.columns import FLAGS, TRIALS

COLUMNS = {column.name: column.dtype for column in TRIALS}
QUIET: dict[str, Any] = {
    "wall_ns": 600_000_000,
    "cpu_util_pct": 50.0,
    "main_cpu_pct": 60.0,
    "workers_cpu_pct": 40.0,
    "foreign_cpu_pct": 0.0,
    "steal_pct": 0.0,
    "throttled_ns": 0,
    "io_pressure_pct": 0.0,
    "memory_pressure_pct": 0.0,
    "read_bytes": 0,
    "gpu_throttle_reasons": 0,
    "gpu_foreign_processes": 0,
    "half_ratio": 1.0,
    "steady": True,
}
"""A trial of two cores, one of which it uses."""


def of_cores(cores: int, foreign: float, ours: float = 100.0) -> dict[str, float]:
    """The columns of a machine of so many cores, foreign and own CPU in % of one."""
    return {
        "foreign_cpu_pct": foreign,
        "main_cpu_pct": ours,
        "workers_cpu_pct": 0.0,
        "cpu_util_pct": (ours + foreign) / cores,
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        (dict.fromkeys(QUIET), None),
        (of_cores(2, 9.9), None),
        (of_cores(2, 10.1), "foreign_cpu"),
        (of_cores(5, 10.1), "foreign_cpu"),
        (of_cores(128, 250.0), None),
        (of_cores(128, 262.0), "foreign_cpu"),
        (of_cores(128, 12000.0), "foreign_cpu"),
        (of_cores(2, 100.0, ours=0.0), "foreign_cpu"),
        ({"foreign_cpu_pct": None}, None),
        ({"throttled_ns": 6_000_000}, None),
        ({"throttled_ns": 6_000_001}, "throttled"),
        ({"memory_pressure_pct": 1.0}, None),
        ({"memory_pressure_pct": 1.1}, "pressure"),
        ({"io_pressure_pct": 10.0}, None),
        ({"io_pressure_pct": 10.1}, "pressure"),
        ({"io_pressure_pct": 10.1, "read_bytes": 599_999}, "pressure"),
        ({"io_pressure_pct": 90.0, "read_bytes": 600_000}, None),
        ({"io_pressure_pct": 90.0, "read_bytes": None}, None),
        # 12 ms: more than 1 % of what was wanted, but hardly more than a tick of 10 ms can tell; then 26 ms
        ({**of_cores(2, 0.0, ours=200.0), "steal_pct": 1.0}, None),
        ({**of_cores(2, 0.0, ours=196.0), "steal_pct": 2.2}, "steal"),
        # one tick of 120 is 14 % of what little was wanted
        ({**of_cores(2, 0.0, ours=10.0), "steal_pct": 0.84}, None),
        # of four busy cores a tenth was taken, of 64 next to nothing
        ({**of_cores(64, 0.0, ours=400.0), "steal_pct": 0.6}, "steal"),
        ({**of_cores(64, 0.0, ours=6400.0), "steal_pct": 0.6}, None),
        ({"gpu_foreign_processes": 1}, "gpu_shared"),
        ({"steady": False, "half_ratio": 0.8}, "unsteady"),
        ({"steady": False, "half_ratio": None}, "unsteady"),
        ({"steady": None, "half_ratio": 0.5}, None),
        ({"steady": False, "half_ratio": 1.8, "page_cache": "cold"}, None),
        ({"steady": False, "memory_pressure_pct": 5.0, **of_cores(2, 50.0)}, "foreign_cpu,pressure,unsteady"),
    ],
)
def test_each_flag_has_its_border(changes: dict[str, Any], expected: str | None) -> None:
    """On the limit is quiet, over it is flagged; names come in the order of the record, joined by commas."""
    assert flags({**QUIET, **changes}) == expected
    assert flags({}) is None


@pytest.mark.parametrize("bit", range(9))
def test_the_gpu_is_flagged_when_it_was_slowed_down(bit: int) -> None:
    """Heat, hardware and the brake; not idle, chosen clocks, the power limit, another GPU's pace or the display."""
    expected = "gpu_throttled" if 1 << bit in SLOWED_BY else None
    assert flags({**QUIET, "gpu_throttle_reasons": 1 << bit}) == expected
    assert (expected is not None) == (1 << bit in (0x08, 0x20, 0x40, 0x80))


numbers = st.one_of(st.none(), st.floats(0, 1e4, allow_nan=False))
rows = st.fixed_dictionaries(
    {name: numbers for name in QUIET if COLUMNS[name] == "float64"}
    | {name: st.one_of(st.none(), st.integers(0, 2**31)) for name in QUIET if COLUMNS[name] == "int64"}
    | {"steady": st.sampled_from([None, True, False])}
)


@settings(max_examples=60)
@given(row=rows, name=st.sampled_from(["memory_pressure_pct", "throttled_ns", "gpu_foreign_processes"]))
def test_any_row_can_be_judged(row: dict[str, Any], name: str) -> None:
    """Whatever a machine tells or withholds: no exception, known names, each once, in order."""
    text = flags(row)
    names = text.split(",") if text else []
    assert names == [flag for flag in FLAGS if flag in names]
    worse = {**row, name: (row[name] or 0) * 2 + 1}
    assert set(names) <= set((flags(worse) or "").split(","))
