"""Rules that every row keeps to by itself: what a value may be, and what the values of a row must be together.

Whatever can be computed from other values is computed anew. ``VALUES`` come first: the others need sound values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feedrate.schema.axes import AXES, BY_NAME, SCRIPT, Value, applicable, cell_id
from feedrate.schema.columns import AXIS_COLUMNS, DEVICE_SPANS, FLAGS, OUTCOMES, PHASES, ROLES, TABLES, WORKER_STAGES
from feedrate.schema.errors import InputError
from feedrate.schema.redaction import EVIDENCE_MOST, INVISIBLE, KIND_MOST, MOST
from feedrate.schema.window import READ_LEAST, STEADY, UNREAD_MOST, consumed_samples, needed_bytes, unread_in_memory
from feedrate.share.validation.findings import CELL_ID, DATA_HASH, MACHINE_ID, MOMENT, NAME, RUN_ID, Finding, Rule
from feedrate.share.validation.manifest import CORES, EXACT
from feedrate.share.validation.parquet import Rows

Wrong = tuple[str, Any, str]
"""A column, a truth a row, and what was expected."""


@dataclass(frozen=True, slots=True)
class RowRule(Rule):
    """A rule that every row keeps to, whatever the others are."""

    find: Callable[[Rows], Iterable[Wrong]]


def broken(rules: Iterable[RowRule], rows: Rows, where: str) -> Iterator[Finding]:
    """List what breaks rules, three columns of a rule at most."""
    for rule in rules:
        offences = ((column, np.asarray(wrong), expected) for column, wrong, expected in rule.find(rows))
        for column, wrong, expected in islice((each for each in offences if each[1].any()), 3):
            count, at = int(wrong.sum()), int(wrong.argmax())
            more = f" and {count - 1} more" if count > 1 else ""
            got = rows.quote(column, at)
            yield rule.finding(f"{where} column {column} row {rows.first + at}{more}", got, expected)


LONGEST_NS = 1e15
"""Eleven days."""
_UNITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("", "bytes"), (0, EXACT)),
    "ns": (0, LONGEST_NS),
    **dict.fromkeys(("samples", "steps", "us", "J"), (0, 1e12)),
    **dict.fromkeys(("ms", "batches", "pixels"), (0, 1e9)),
    "samples/s": (1e-9, 1e12),
    "bytes/s": (0, 1e14),
    "%": (0, 100),
    **dict.fromkeys(("W", "MHz"), (0, 1e5)),
    "C": (-60, 200),
}
"""Unit to the least and the most that a measurement can be; for counts the unit is empty."""
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("steps", "samples"), (1, EXACT)),
    "wall_ns": (1, LONGEST_NS),
    "half_ratio": (1e-9, 1e9),
    "fact_value": (-1e300, 1e300),
    "gpu_throttle_reasons": (0, 2.0**63),
    **dict.fromkeys(("worker_begun_ns", "worker_ended_ns"), (-LONGEST_NS, LONGEST_NS)),
    **dict.fromkeys(("block", "position"), (0, 1e6)),
    "t_ns": (0, 100 * LONGEST_NS),
    **dict.fromkeys(("main_cpu_pct", "workers_cpu_pct", "foreign_cpu_pct"), (0, 100.0 * CORES)),
    # Pressure is read from another clock than the window's.
    **dict.fromkeys(("io_pressure_pct", "memory_pressure_pct"), (0, 101.0)),
}
"""Columns whose range is not that of their unit."""
_PATTERNS: dict[str, str] = {
    "run_id": RUN_ID,
    "trial_id": RUN_ID + "-[0-9]{3,7}-[0-9]{4,7}",
    "machine_id": MACHINE_ID,
    "cell_id": CELL_ID,
    "data_hash": DATA_HASH,
    "suite": NAME,
    "started_at": MOMENT,
    "flags": f"(?:{'|'.join(FLAGS)})(?:,(?:{'|'.join(FLAGS)}))*",
    "outcome": "|".join(OUTCOMES),
    "role": "|".join(ROLES),
    "device": "cpu|cuda",
    **{
        name: f"[^{INVISIBLE}]{{0,{most}}}"
        for name, most in {"error_kind": KIND_MOST, "error_message": MOST, "evidence": EVIDENCE_MOST}.items()
    },
}
"""Column of texts to the regular expression that each matches from end to end."""
_REQUIRED: dict[str, tuple[str, ...]] = {
    "trials": (
        *("run_id", "trial_id", "cell_id", "machine_id", "block", "position", "device", "protocol_version"),
        *("started_at", "outcome", "workload", "mode"),
    ),
    "steps": ("run_id", "trial_id", "step"),
    "telemetry": ("run_id", "trial_id", "t_ns", "in_window"),
}
_AXES = {column.name for column in AXIS_COLUMNS}


def _present(rows: Rows) -> Iterator[Wrong]:
    for name in _REQUIRED[rows.name]:
        if name not in rows or rows.table[name].null_count:
            yield name, rows[name].isna(), "a value in every row"


def _finite(rows: Rows) -> Iterator[Wrong]:
    for name in rows.table.column_names:
        column = rows.table[name]
        if pa.types.is_floating(column.type) and name in rows:
            yield name, ~pc.fill_null(pc.is_finite(column), True).to_numpy(), "a finite number"


def _in_range(rows: Rows) -> Iterator[Wrong]:
    for column in TABLES[rows.name]:  # axes have a rule of their own
        if column.dtype in ("int64", "float64") and column.name not in _AXES and column.name in rows:
            low, high = _RANGES.get(column.name, _UNITS[column.unit])
            value = rows[column.name].to_numpy()
            yield column.name, (value < low) | (value > high), f"{low:g} to {high:g}"


def _matching(rows: Rows) -> Iterator[Wrong]:
    for name, pattern in _PATTERNS.items():
        words = rows.table[name].chunk(0).dictionary.to_pylist() if name in rows else []
        if other := [word for word in words if not re.fullmatch(pattern, word)]:
            expected = f"a text such as {pattern}" if pattern.isprintable() else "one short line of plain text"
            yield name, rows[name].isin(other), expected


VALUES = (
    RowRule("present", "What says which trial a row is of stands in every row.", _present),
    RowRule("finite", "Every number is finite: neither infinite nor not a number.", _finite),
    RowRule(
        "range",
        "Every number lies where its unit allows: no negative time, no share over 100 %, nothing that took longer "
        "than eleven days.",
        _in_range,
    ),
    RowRule(
        "text",
        "Ids, hashes, times and suites match the pattern that feedrate writes, so that none can be a path or markup; "
        "outcome, role, device and flags are words of their lists; free texts are one short line.",
        _matching,
    ),
)

RATE_WITHIN = 1e-6
"""Share by which a stored rate may miss what it is computed from: one of them is a float, one whole nanoseconds."""
OPEN_SHARE, OPEN_NS = 0.1, 5e6
"""What the phases may leave of the wall clock: ``other`` is stamped by itself, and the system may step in between."""
OVER_NS = 1e3
"""What the phases may be more than the wall clock by: nothing, but for rounding."""
_CONSECUTIVE = ["wall_ns", "warmup_ns", "startup_ns", "compile_ns"]
"""What a trial does one after the other; a cache that it reads was filled by the first trial that read it."""
STAGES = [f"worker_{stage}_ns" for stage in (*WORKER_STAGES, "getitem")]
COLD_SINCE = 2
"""Protocol version from which on a cold trial has to prove itself."""


def _timed(rows: Rows) -> Any:
    """Trials that ended well and timed a window: all that did but checks of facts."""
    return rows["outcome"].eq("ok") & rows["mode"].ne("check")


def _of_run(rows: Rows) -> Iterator[Wrong]:
    run = rows.run
    for name, value in (
        *(("run_id", run.run_id), ("machine_id", run.machine.machine_id), ("device", run.device)),
        ("protocol_version", run.protocol_version),
    ):
        yield name, rows[name].ne(value), "what the manifest says"
    for name in ("host_h2d_ns", *(f"device_{span}_ns" for span in DEVICE_SPANS)):
        if name in rows:
            yield name, rows["device"].eq("cpu") & rows[name].notna(), "nothing, on a CPU"


def _trial_ids(rows: Rows) -> Iterator[Wrong]:
    block, position = (rows[name].astype(int).astype(str) for name in ("block", "position"))
    wanted = rows["run_id"].astype(str) + "-" + block.str.zfill(3) + "-" + position.str.zfill(4)
    yield "trial_id", rows["trial_id"].astype(str).ne(wanted), "run_id, block and position, joined"


def _outcomes(rows: Rows) -> Iterator[Wrong]:
    timed, well = _timed(rows), rows["outcome"].eq("ok")
    yield "error_kind", rows["error_kind"].notna() == well, "a kind where a trial failed, and only there"
    for name in ("steps", "samples", "wall_ns", "samples_per_s"):
        yield name, rows[name].notna() != timed, "a value where a window was timed"
    yield "fact", rows["fact"].notna() != (well & ~timed), "a value where a check ended well"


def _rates(rows: Rows) -> Iterator[Wrong]:
    samples, most = rows["samples"], rows["steps"] * rows["batch_size"].fillna(1) * rows["world_size"].fillna(1)
    wrong = (samples != most) & ~(rows["workload"].eq(SCRIPT) & (samples < most))
    yield "samples", _timed(rows) & wrong, "steps × batch_size × world_size; no more, of a script"
    meant = rows["samples_per_s"] * rows["wall_ns"] / 1e9
    yield "samples_per_s", _timed(rows) & ~((meant - samples).abs() <= RATE_WITHIN * samples), "samples ÷ wall_ns"
    half = rows["half_ratio"]
    steady = (half > STEADY) & (half < 1 / STEADY)
    expected = f"whether half_ratio lies within {STEADY:g} and its inverse"
    yield "steady", rows["steady"].notna() & (rows["steady"] != steady), expected


def _times(rows: Rows) -> Iterator[Wrong]:
    timed, wall = _timed(rows), rows["wall_ns"]
    phases = rows.sum(f"host_{phase}_ns" for phase in PHASES)
    closes = (phases <= wall + OVER_NS) & (phases >= wall - OPEN_SHARE * wall - OPEN_NS)
    expected = f"wall_ns, or less by {100 * OPEN_SHARE:g} % and {OPEN_NS / 1e6:g} ms at most"
    yield "host_*_ns", timed & ~closes, expected
    lasted = rows.sum(_CONSECUTIVE)
    wrong = ~(lasted <= rows["trial_wall_ns"] * (1 + RATE_WITHIN))
    yield "trial_wall_ns", timed & wrong, f"at least {' + '.join(_CONSECUTIVE)}"
    # Batches of a stretch of a script may have been prepared in the ones before.
    had = rows["num_workers"].fillna(0).clip(lower=1) * lasted
    wrong = ~(rows.sum(STAGES) <= had + OVER_NS) & rows["workload"].ne(SCRIPT)
    yield "worker_*_ns", timed & wrong, f"at most num_workers × ({' + '.join(_CONSECUTIVE)})"


def _page_cache(rows: Rows) -> Iterator[Wrong]:
    """Find cold trials that read less than they had to, and full memories that were not."""
    count, timed = rows["n_samples"], _timed(rows)
    needed = needed_bytes(rows["stored_bytes"], rows["samples"], count)
    cold = timed & rows["page_cache"].eq("cold") & (rows.run.protocol_version >= COLD_SINCE)
    wrong = cold & ~(rows["read_bytes"] >= READ_LEAST * needed)
    yield "read_bytes", wrong, f"{READ_LEAST:.0%} of stored_bytes × samples ÷ n_samples, or more"
    steps = rows["warmup_steps"] + rows["steps"]
    workers, ahead = (rows[name].fillna(0) for name in ("num_workers", "prefetch_factor"))
    consumed = consumed_samples(steps, rows["batch_size"], workers, ahead)
    unread = unread_in_memory(rows["cached_after_pct"], consumed, count)
    asked = cold & rows["access"].eq("random") & ~(rows["memory_limit_mib"] > 0)
    wrong = asked & ~((unread <= UNREAD_MOST) & (consumed < count))
    yield "cached_after_pct", wrong, f"{UNREAD_MOST:.0%} of the samples in memory that were not read, at most"
    full = timed & rows["page_cache"].eq("full")
    for name in ("memory_limit_mib", "read_bytes"):
        yield name, full & ~(rows[name] > 0), "more than 0"
    yield "cached_after_pct", full & ~(rows["cached_after_pct"] < 100), "less than 100"


def _cells(rows: Rows) -> Iterator[Wrong]:
    """Find cells whose id or axes are wrong."""
    names = [axis.name for axis in AXES if axis.name in rows]
    keys = [*names, "cell_id", "device"]
    numbered = rows.table.select(keys).append_column("row", pa.array(range(len(rows))))
    for values in numbered.group_by(keys, use_threads=False).aggregate([("row", "min")]).to_pylist():
        axes = tuple((name, values[name]) for name in names if values[name] is not None)
        if problem := _cell_problem(axes, values["device"], values["cell_id"]):
            column, expected = problem
            yield column, np.arange(len(rows)) == values["row_min"], expected


@lru_cache(maxsize=1 << 16)
def _cell_problem(cell: tuple[tuple[str, Value], ...], device: str, recorded: str) -> tuple[str, str] | None:
    """Say what is wrong with a cell, by the axes that it sets: the column, and what was expected."""
    axes = dict(cell)
    for name, value in cell:
        try:
            BY_NAME[name].checked(value, name)
        except InputError as error:
            return name, str(error).rpartition("; expected ")[2]
    _, idle = applicable({axis.name: axis.default for axis in AXES} | axes, device)
    for name, value in cell:
        if name in idle and value != BY_NAME[name].default:
            return name, f"nothing: {idle[name]}"
    wanted = cell_id(axes)
    return None if wanted == recorded else ("cell_id", f"{wanted} by its axes")


IDENTITIES = (
    RowRule(
        "of_run",
        "Every row names the manifest's run, machine, device and protocol version; on a CPU nothing was copied to a "
        "device and no device was timed.",
        _of_run,
    ),
    RowRule("trial_id", "A trial's id is computed anew from its run, block and position.", _trial_ids),
    RowRule(
        "cell",
        "A cell's id is computed anew from its axes, and every axis has a value that it can have, away from its "
        "default only where it applies.",
        _cells,
    ),
    RowRule(
        "outcome",
        "A trial that ended well timed a window (a check: saw a fact) and has no error; one that failed has an error "
        "and no window.",
        _outcomes,
    ),
    RowRule(
        "rate",
        "Samples are steps × batch size × replicas, or less of a script, whose batches may not be full; throughput × "
        "wall clock is the number of samples, to one part in a million; a window is steady by the ratio of its halves.",
        _rates,
    ),
    RowRule(
        "times",
        "The host's phases sum to no more than the window's wall clock and to at least "
        f"{100 * (1 - OPEN_SHARE):g} % of it minus {OPEN_NS / 1e6:g} ms; start-up, compiling, warm-up and window take "
        "no longer than the whole trial, and the stages of batches no longer than all workers had until then.",
        _times,
    ),
    RowRule(
        "page_cache",
        "A trial that is called cold read from storage, in its window, at least "
        f"{READ_LEAST:.0%} of the bytes that its samples take there; in random order, and without a memory limit, at "
        f"most {UNREAD_MOST:.0%} of the samples that it did not read lay in memory afterwards (protocol {COLD_SINCE} "
        "and later). One whose memory was full of its set had a memory limit, read from storage, and had not all of "
        "the set in memory afterwards.",
        _page_cache,
    ),
)
