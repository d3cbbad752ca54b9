"""THE table of what disturbs a trial: which column tells it, from which value on, and why from there.

A flag says that something may have moved the number, not that it did. The rules read nothing but a row of the trials
table, so whoever holds the records can apply them again. What a machine does not tell (None) flags nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from feedrate.schema.columns import FLAGS

Row = Mapping[str, Any]
"""A row of ``columns.TRIALS``; a column that is missing counts as None."""

SLOWED_BY = {0x08: "hardware slowdown", 0x20: "heat (driver)", 0x40: "heat (hardware)", 0x80: "power brake"}
"""Bits of ``gpu_throttle_reasons`` that mean slowed down. The others are an idle GPU (0x01), clocks that somebody chose
(0x02), the power limit (0x04: what the card is at full load, and no disturbance), another GPU's pace (0x10) and the
display (0x100). Source: nvml.h, ``nvmlClocksEventReason*``."""
LITTLE_BYTES_PER_S = 1_000_000
"""A trial that reads less waits for storage so little that the waiting which the machine shows is others'."""

_BUSY = ("main_cpu_pct", "workers_cpu_pct", "foreign_cpu_pct")


@dataclass(frozen=True, slots=True)
class Limit:
    """What must be exceeded."""

    measure: str
    """A numeric column of the trials table, or a name in ``DERIVED``."""
    over: float
    unit: str


@dataclass(frozen=True, slots=True)
class Rule:
    """When a flag is raised: all of its limits are exceeded. A flag that has several rules needs one of them."""

    flag: str
    """One of ``columns.FLAGS``."""
    limits: tuple[Limit, ...]
    """The first names what the flag is about."""
    doc: str
    """Why from there."""


def _cores(row: Row) -> float:
    """How many cores shares are shares of, as busy is ours or foreign; 1 where that cannot be told."""
    share = row.get("cpu_util_pct")
    parts = [value for name in _BUSY if (value := row.get(name)) is not None]
    return max(1.0, float(sum(parts) / share)) if share and len(parts) == len(_BUSY) else 1.0


def _halves_apart_pct(row: Row, steady: bool) -> float | None:
    if row.get("page_cache") == "cold":  # what is read ahead makes its second half the faster
        return None
    ratio = row.get("half_ratio")
    apart = 100 * (max(ratio, 1 / ratio) - 1) if ratio else 0.0
    return 0.0 if steady else apart or math.inf


class Derived(NamedTuple):
    """A measure that is computed from columns."""

    reads: tuple[str, ...]
    """Columns; where one of them is None, so is the measure."""
    formula: Callable[..., float | None]
    """Of the row and those columns."""
    doc: str


DERIVED: dict[str, Derived] = {
    "foreign_share_pct": Derived(
        ("foreign_cpu_pct",),
        lambda row, foreign: foreign / _cores(row),
        "foreign_cpu_pct as a share of all of the machine's cores",
    ),
    "stolen_ms": Derived(
        ("steal_pct", "wall_ns"),
        lambda row, steal, wall: steal / 100 * _cores(row) * wall / 1e6,
        "steal_pct of all cores, in milliseconds of one core over the window",
    ),
    "stolen_share_pct": Derived(
        ("steal_pct", "cpu_util_pct"),
        lambda _, steal, busy: 100 * steal / (steal + busy) if steal + busy > 0 else None,
        "stolen ÷ (busy + stolen): of the time that somebody here wanted to run",
    ),
    "throttled_pct": Derived(
        ("throttled_ns", "wall_ns"),
        lambda _, stopped, wall: 100 * stopped / wall if wall else None,
        "throttled_ns ÷ wall_ns; over 100 when several cores were stopped",
    ),
    "foreign_io_pct": Derived(
        ("io_pressure_pct", "read_bytes", "wall_ns"),
        lambda _, pressure, read, wall: pressure if read < LITTLE_BYTES_PER_S * wall / 1e9 else None,
        "io_pressure_pct of a measurement that reads less than 1 MB/s; else unknown",
    ),
    "gpu_slowed": Derived(
        ("gpu_throttle_reasons",),
        lambda _, reasons: sum(bool(int(reasons) & bit) for bit in SLOWED_BY),
        f"how many reasons NVML gave: {', '.join(SLOWED_BY.values())}",
    ),
    "halves_apart_pct": Derived(
        ("steady",), _halves_apart_pct, "by how much the window's halves differ, 0 if steady; unknown if cold"
    ),
}

RULES: tuple[Rule, ...] = (
    Rule(
        "foreign_cpu",
        (Limit("foreign_cpu_pct", 10.0, "% of one core"), Limit("foreign_share_pct", 2.0, "% of all cores")),
        "On a few cores a tenth of one is missed at once. On many, the monitoring of any server uses that much beside "
        "idle cores. There 2 % of the machine stands for neighbours that share its caches and memory.",
    ),
    Rule(
        "steal",
        (Limit("stolen_share_pct", 1.0, "% of the wanted CPU time"), Limit("stolen_ms", 25.0, "ms of one core")),
        "Time stolen from a CPU-bound measurement is missing from its throughput. 1 % is the least that a verdict "
        "tells apart. Ticks are 10 ms: growth by two of them may be hardly more than one.",
    ),
    Rule(
        "throttled",
        (Limit("throttled_pct", 1.0, "% of the window"),),
        "A quota that stops the measurement is a limit of the container, not of the machine.",
    ),
    Rule(
        "pressure",
        (Limit("memory_pressure_pct", 1.0, "% of the window"),),
        "Waiting for memory means reclaiming, swapping or reading pages anew: whoever waits, caches are lost.",
    ),
    Rule(
        "pressure",
        (Limit("foreign_io_pct", 10.0, "% of the window"),),
        "A measurement that reads from storage waits for it, and this looks like others' waiting. So only measurements "
        "that read next to nothing are judged. A system that writes its logs stays under a tenth.",
    ),
    Rule(
        "gpu_throttled",
        (Limit("gpu_slowed", 0.0, "reasons"),),
        "Power or heat held the clocks down for at least one sample of the window.",
    ),
    Rule(
        "gpu_shared",
        (Limit("gpu_foreign_processes", 0.0, "processes"),),
        "Another process holds a context on the GPU: it may compute at any moment, and its memory is taken.",
    ),
    Rule(
        "unsteady",
        (Limit("halves_apart_pct", 0.0, "% apart"),),
        "The halves of the window differ by more than a tenth (column steady): warm-up, drift or a burst lies inside.",
    ),
)
"""In the order of ``columns.FLAGS``."""

_MEASURES = (limit.measure for rule in RULES for limit in rule.limits)
_OF_DERIVED = (column for derived in DERIVED.values() for column in derived.reads)
READS = sorted({*_MEASURES, *_OF_DERIVED, *_BUSY, "half_ratio", "page_cache"} - DERIVED.keys())
"""Columns that the rules read."""


def measure(name: str, row: Row) -> float | None:
    """Read a numeric column, or a measure in ``DERIVED``, off a row; None where the machine did not tell."""
    derived = DERIVED.get(name)
    values = [row.get(column) for column in (derived.reads if derived else (name,))]
    value = None if None in values else derived.formula(row, *values) if derived else values[0]
    return None if value is None else float(value)


def broken(row: Row) -> list[Rule]:
    """List the rules whose every limit a row exceeds, in the table's order."""

    def exceeds(limit: Limit) -> bool:
        value = measure(limit.measure, row)
        return value is not None and value > limit.over

    return [rule for rule in RULES if all(map(exceeds, rule.limits))]


def flags(row: Row) -> str | None:
    """Name the ``columns.FLAGS`` that apply to a row, in that order, joined by commas; None when none does."""
    raised = {rule.flag for rule in broken(row)}
    return ",".join(flag for flag in FLAGS if flag in raised) or None
