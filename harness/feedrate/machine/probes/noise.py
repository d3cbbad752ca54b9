"""THE table of what disturbs a trial: which column tells it, from which value on, and why from there.

A flag says that something may have moved the number, not that it did. The rules read nothing but a row of the trials
table, so whoever holds the records can apply them again. What a machine does not tell (None) flags nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from feedrate.schema.columns import FLAGS

Row = Mapping[str, Any]
"""A row of ``columns.TRIALS``; a column that is missing counts as None."""

SLOWED_BY = {
    0x08: "hardware slowdown",
    0x20: "heat (driver)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
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
    """How many cores the machine's shares are shares of; 1 where that cannot be told.

    What is busy is ours or foreign: their sum, in % of one core, is ``cpu_util_pct`` of all cores.
    """
    share = row.get("cpu_util_pct")
    parts = [value for name in _BUSY if (value := row.get(name)) is not None]
    return max(1.0, float(sum(parts) / share)) if share and len(parts) == len(_BUSY) else 1.0


def _foreign_share_pct(row: Row) -> float | None:
    foreign = row.get("foreign_cpu_pct")
    return None if foreign is None else foreign / _cores(row)


def _stolen_ms(row: Row) -> float | None:
    steal, wall = row.get("steal_pct"), row.get("wall_ns")
    return None if steal is None or wall is None else steal / 100 * _cores(row) * wall / 1e6


def _stolen_share_pct(row: Row) -> float | None:
    steal, busy = row.get("steal_pct"), row.get("cpu_util_pct")
    return None if steal is None or busy is None or steal + busy <= 0 else 100 * steal / (steal + busy)


def _throttled_pct(row: Row) -> float | None:
    stopped, wall = row.get("throttled_ns"), row.get("wall_ns")
    return None if stopped is None or not wall else 100 * stopped / wall


def _foreign_io_pct(row: Row) -> float | None:
    read, wall = row.get("read_bytes"), row.get("wall_ns")
    little = read is not None and wall is not None and read < LITTLE_BYTES_PER_S * wall / 1e9
    return row.get("io_pressure_pct") if little else None


def _gpu_slowed(row: Row) -> int | None:
    reasons = row.get("gpu_throttle_reasons")
    return None if reasons is None else sum(bool(int(reasons) & bit) for bit in SLOWED_BY)


def _halves_apart_pct(row: Row) -> float | None:
    steady, ratio = row.get("steady"), row.get("half_ratio")
    if steady is None or row.get("page_cache") == "cold":  # what is read ahead makes its second half the faster
        return None
    apart = 100 * (max(ratio, 1 / ratio) - 1) if ratio else 0.0
    return 0.0 if steady else apart or math.inf


DERIVED: dict[str, tuple[Callable[[Row], float | None], str]] = {
    "foreign_share_pct": (_foreign_share_pct, "foreign_cpu_pct as a share of all of the machine's cores"),
    "stolen_ms": (_stolen_ms, "steal_pct of all cores, in milliseconds of one core over the window"),
    "stolen_share_pct": (_stolen_share_pct, "stolen ÷ (busy + stolen): of the time that somebody here wanted to run"),
    "throttled_pct": (_throttled_pct, "throttled_ns ÷ wall_ns; over 100 when several cores were stopped"),
    "foreign_io_pct": (_foreign_io_pct, "io_pressure_pct of a measurement that reads less than 1 MB/s; else unknown"),
    "gpu_slowed": (_gpu_slowed, f"how many reasons NVML gave: {', '.join(SLOWED_BY.values())}"),
    "halves_apart_pct": (_halves_apart_pct, "by how much the window's halves differ, 0 if steady; unknown if cold"),
}
"""Measures that are computed from columns: how, and what they are."""

RULES: tuple[Rule, ...] = (
    Rule(
        "foreign_cpu",
        (Limit("foreign_cpu_pct", 10.0, "% of one core"), Limit("foreign_share_pct", 2.0, "% of all cores")),
        "On a few cores a tenth of one is missed at once. On many, the monitoring of any server uses that much beside "
        "idle cores. There 2 % of the machine stands for neighbours that share its caches and memory.",
    ),
    Rule(
        "steal",
        (
            Limit("stolen_share_pct", 1.0, "% of the wanted CPU time"),
            Limit("stolen_ms", 25.0, "ms of one core"),
        ),
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

READS = (
    "cpu_util_pct",
    *_BUSY,
    "steal_pct",
    "throttled_ns",
    "io_pressure_pct",
    "memory_pressure_pct",
    "read_bytes",
    "gpu_throttle_reasons",
    "gpu_foreign_processes",
    "half_ratio",
    "steady",
    "page_cache",
    "wall_ns",
)
"""Columns that the rules read."""


def measure(name: str, row: Row) -> float | None:
    """Read a numeric column, or a measure in ``DERIVED``, off a row; None where the machine did not tell."""
    value = DERIVED[name][0](row) if name in DERIVED else row.get(name)
    return None if value is None else float(value)


def broken(row: Row) -> list[Rule]:
    """List the rules whose every limit a row exceeds, in the table's order."""

    def exceeds(limit: Limit) -> bool:
        value = measure(limit.measure, row)
        return value is not None and value > limit.over

    return [rule for rule in RULES if all(map(exceeds, rule.limits))]


def flags(row: Row) -> str | None:
    """Tell what may have disturbed a trial, of which as much of its row is given as is known.

    Returns:
        The names of ``columns.FLAGS`` that apply, in that order, joined by commas; None when none does.
    """
    raised = {rule.flag for rule in broken(row)}
    return ",".join(flag for flag in FLAGS if flag in raised) or None
