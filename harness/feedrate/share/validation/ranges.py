"""What a single value may be: numbers by their unit, texts by what they are for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feedrate.schema.columns import AXIS_COLUMNS, FLAGS, OUTCOMES, ROLES, TABLES, Column
from feedrate.schema.redaction import EVIDENCE_MOST, INVISIBLE, KIND_MOST, MOST
from feedrate.share.validation import findings
from feedrate.share.validation.manifest import CORES, EXACT
from feedrate.share.validation.rows import Offence, RowRule, Rows, held

LONGEST_NS = 1e15
"""Eleven days."""
_UNITS: dict[str, tuple[float, float]] = {
    "": (0, EXACT),
    "ns": (0, LONGEST_NS),
    "us": (0, 1e12),
    "ms": (0, 1e9),
    "bytes": (0, EXACT),
    "samples": (0, 1e12),
    "steps": (0, 1e12),
    "batches": (0, 1e9),
    "pixels": (0, 1e6),
    "samples/s": (1e-9, 1e12),
    "bytes/s": (0, 1e14),
    "%": (0, 100),
    "W": (0, 1e5),
    "J": (0, 1e12),
    "MHz": (0, 1e5),
    "C": (-60, 200),
}
"""Unit to the least and the most that a measurement can be; for counts the unit is empty."""
_OWN: dict[str, tuple[float, float]] = {
    "steps": (1, EXACT),
    "samples": (1, EXACT),
    "wall_ns": (1, LONGEST_NS),
    "half_ratio": (1e-9, 1e9),
    "fact_value": (-1e300, 1e300),
    "gpu_throttle_reasons": (0, 2.0**63),
    "worker_begun_ns": (-LONGEST_NS, LONGEST_NS),
    "worker_ended_ns": (-LONGEST_NS, LONGEST_NS),
    "step_ms": (0, 1e9),
    "block": (0, 1e6),
    "position": (0, 1e6),
    "t_ns": (0, 100 * LONGEST_NS),
    **dict.fromkeys(("main_cpu_pct", "workers_cpu_pct", "foreign_cpu_pct"), (0, 100.0 * CORES)),
    # Pressure is read from another clock than the window's.
    **dict.fromkeys(("io_pressure_pct", "memory_pressure_pct"), (0, 101.0)),
}
"""Columns whose range is not that of their unit."""

_IDS: dict[str, str] = {
    "run_id": findings.RUN_ID,
    "trial_id": findings.RUN_ID + "-[0-9]{3,7}-[0-9]{4,7}",
    "machine_id": findings.MACHINE_ID,
    "cell_id": findings.CELL_ID,
    "data_hash": findings.DATA_HASH,
    "suite": findings.NAME,
    "started_at": findings.MOMENT,
    "flags": f"(?:{'|'.join(FLAGS)})(?:,(?:{'|'.join(FLAGS)}))*",
}
"""Columns of texts that are names or times, each with the regular expression (RE2) that it matches."""
_CHOICES: dict[str, tuple[str, ...]] = {"outcome": OUTCOMES, "role": ROLES, "device": ("cpu", "cuda")}
_FREE: dict[str, int] = {"error_kind": KIND_MOST, "error_message": MOST, "evidence": EVIDENCE_MOST}
"""Columns of free text, each with the most characters that it holds."""
_REQUIRED: dict[str, tuple[str, ...]] = {
    "trials": (
        *("run_id", "trial_id", "cell_id", "machine_id", "block", "position", "device", "protocol_version"),
        *("started_at", "outcome", "workload", "mode"),
    ),
    "steps": ("run_id", "trial_id", "step"),
    "telemetry": ("run_id", "trial_id", "t_ns", "in_window"),
}
_AXES = {column.name for column in AXIS_COLUMNS}


def _finite(rows: Rows) -> Iterator[Offence]:
    for name in rows.table.column_names:
        column = rows.table.column(name)
        if pa.types.is_floating(column.type) and column.null_count < len(column):
            wrong = ~pc.fill_null(pc.is_finite(column), True).to_numpy().astype(np.bool_)
            yield Offence(name, wrong, held(rows, name), "a finite number")


def _in_range(rows: Rows) -> Iterator[Offence]:
    for column in _columns_of(rows):
        if column.dtype in ("int64", "float64"):
            low, high = _OWN.get(column.name, _UNITS[column.unit])
            value = rows.number(column.name)
            yield Offence(column.name, (value < low) | (value > high), held(rows, column.name), f"{low:g} to {high:g}")


def _named(rows: Rows) -> Iterator[Offence]:
    for name, pattern in _IDS.items():
        if name in rows.table.column_names:
            wrong = ~rows.text(name).matching(pattern)
            yield Offence(name, wrong, held(rows, name), f"a text such as {pattern}")
    for name, options in _CHOICES.items():
        if name in rows.table.column_names:
            wrong = ~rows.text(name).one_of(options)
            yield Offence(name, wrong, held(rows, name), f"one of {', '.join(options)}")


def _free(rows: Rows) -> Iterator[Offence]:
    for name, most in _FREE.items():
        if name in rows.table.column_names:
            column = rows.text(name)
            long = pc.greater(pc.utf8_length(column.words), most)
            control = pc.match_substring_regex(column.words, f"[{INVISIBLE}]")
            wrong = column.each(pc.or_(long, control).to_numpy(zero_copy_only=False))
            yield Offence(name, wrong, held(rows, name), f"one line of {most} characters, without control characters")


def _present(rows: Rows) -> Iterator[Offence]:
    for name in _REQUIRED[rows.name]:
        yield Offence(name, ~rows.known(name), lambda _: "nothing", "a value in every row")


def _columns_of(rows: Rows) -> Iterator[Column]:
    """The table's columns that hold a value at all, axes left out, which have a rule of their own."""
    for column in TABLES[rows.name]:
        if column.name not in _AXES and rows.holds(column.name):
            yield column


RULES = (
    RowRule("present", "What says which trial a row is of stands in every row.", _present),
    RowRule("finite", "Every number is finite: neither infinite nor not a number.", _finite),
    RowRule(
        "range",
        "Every number lies where its unit allows: no negative time, no share over 100 %, nothing that took longer "
        "than eleven days.",
        _in_range,
    ),
    RowRule(
        "name",
        "Ids, hashes, times and suites match the pattern that feedrate writes, so that none can be a path or markup; "
        "outcome, role, device and flags are words of their lists.",
        _named,
    ),
    RowRule("free_text", "Free texts are one line, short and without control characters.", _free),
)
