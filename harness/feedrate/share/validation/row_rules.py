"""Rules that every row keeps to by itself: what a single value may be, and what the values of a row must be together.

A rule is a name, a sentence, and a function over many rows at once. Whatever can be computed from other values is
computed anew. ``IDENTITIES`` need sound values, so they are tried where ``VALUES`` hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feedrate.schema.axes import AXES, BY_NAME, SCRIPT, Value, applicable, cell_id
from feedrate.schema.columns import AXIS_COLUMNS, DEVICE_SPANS, FLAGS, OUTCOMES, PHASES, ROLES, TABLES, WORKER_STAGES
from feedrate.schema.errors import InputError
from feedrate.schema.redaction import EVIDENCE_MOST, INVISIBLE, KIND_MOST, MOST
from feedrate.schema.window import READ_LEAST, STEADY, UNREAD_MOST, consumed_samples, needed_bytes, unread_in_memory
from feedrate.share.validation.findings import (
    CELL_ID,
    DATA_HASH,
    MACHINE_ID,
    MOMENT,
    NAME,
    RUN_ID,
    Finding,
    Rule,
    quote,
)
from feedrate.share.validation.manifest import CORES, EXACT
from feedrate.share.validation.parquet import Codes, Mask, Rows

_SHOWN = 3
"""Columns or reasons of one rule that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Offence:
    """Rows that break a rule in one way."""

    column: str
    rows: Mask
    """A truth a row."""
    expected: str
    got: Callable[[int], str] | None = None
    """Says of the row of a number what it holds; None for the value of the column."""


@dataclass(frozen=True, slots=True)
class RowRule(Rule):
    """A rule that every row keeps to, whatever the others are."""

    find: Callable[[Rows], Iterable[Offence]]


def broken(rules: Iterable[RowRule], rows: Rows, where: str) -> Iterator[Finding]:
    """List what breaks rules, for each rule a few columns at most."""
    for rule in rules:
        for offence in islice((offence for offence in rule.find(rows) if offence.rows.any()), _SHOWN):
            count, at = int(offence.rows.sum()), int(np.argmax(offence.rows))
            more = f" and {count - 1} more" if count > 1 else ""
            got = offence.got(at) if offence.got else rows.quote(offence.column, at)
            yield rule.finding(f"{where} column {offence.column} row {rows.first + at}{more}", got, offence.expected)


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
    "run_id": RUN_ID,
    "trial_id": RUN_ID + "-[0-9]{3,7}-[0-9]{4,7}",
    "machine_id": MACHINE_ID,
    "cell_id": CELL_ID,
    "data_hash": DATA_HASH,
    "suite": NAME,
    "started_at": MOMENT,
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


def _present(rows: Rows) -> Iterator[Offence]:
    for name in _REQUIRED[rows.name]:
        yield Offence(name, ~rows.valid(name), "a value in every row", lambda _: "nothing")


def _finite(rows: Rows) -> Iterator[Offence]:
    for name in rows.table.column_names:
        column = rows.column(name)
        if pa.types.is_floating(column.type) and column.null_count < len(column):
            wrong = ~pc.fill_null(pc.is_finite(column), True).to_numpy(zero_copy_only=False)
            yield Offence(name, wrong, "a finite number")


def _in_range(rows: Rows) -> Iterator[Offence]:
    for column in TABLES[rows.name]:  # axes have a rule of their own
        if column.dtype in ("int64", "float64") and column.name not in _AXES and rows.holds(column.name):
            low, high = _OWN.get(column.name, _UNITS[column.unit])
            value = rows.number(column.name)
            yield Offence(column.name, (value < low) | (value > high), f"{low:g} to {high:g}")


def _named(rows: Rows) -> Iterator[Offence]:
    for name, pattern in _IDS.items():
        if name in rows:
            yield Offence(name, ~rows.text(name).matches(pattern), f"a text such as {pattern}")
    for name, options in _CHOICES.items():
        if name in rows:
            yield Offence(name, ~rows.text(name).one_of(*options, null=True), f"one of {', '.join(options)}")


def _free(rows: Rows) -> Iterator[Offence]:
    for name, most in _FREE.items():
        if name in rows:
            texts = rows.text(name)
            long = pc.greater(pc.utf8_length(texts.words), most)
            control = pc.match_substring_regex(texts.words, f"[{INVISIBLE}]")
            wrong = texts.spread(pc.or_(long, control), null=False)
            yield Offence(name, wrong, f"one line of {most} characters, without control characters")


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
        "name",
        "Ids, hashes, times and suites match the pattern that feedrate writes, so that none can be a path or markup; "
        "outcome, role, device and flags are words of their lists.",
        _named,
    ),
    RowRule("free_text", "Free texts are one line, short and without control characters.", _free),
)

RATE_WITHIN = 1e-6
"""Share by which a stored rate may miss what it is computed from: one of them is a float, one whole nanoseconds."""
OPEN_SHARE, OPEN_NS = 0.1, 5e6
"""What the phases may leave of the wall clock: ``other`` is stamped by itself, and the system may step in between."""
OVER_NS = 1e3
"""What the phases may be more than the wall clock by: nothing, but for rounding."""
_PARTS = ("wall_ns", "warmup_ns", "startup_ns", "compile_ns")
"""What a trial does one after the other; a cache that it reads was filled by the first trial that read it."""
COLD_SINCE = 2
"""Protocol version from which on a cold trial has to prove itself."""


def _timed(rows: Rows) -> Mask:
    """Trials that ended well and timed a window: all that did but checks of facts."""
    return rows.text("outcome").one_of("ok") & ~rows.text("mode").one_of("check")


def _of_run(rows: Rows) -> Iterator[Offence]:
    run = rows.run
    for name, text in (("run_id", run.run_id), ("machine_id", run.machine.machine_id), ("device", run.device)):
        yield Offence(name, ~rows.text(name).one_of(text), "what the manifest says")
    versions = rows.number("protocol_version")
    yield Offence("protocol_version", versions != run.protocol_version, "what the manifest says")


def _trial_ids(rows: Rows) -> Iterator[Offence]:
    run, own, block, position = (
        rows.column(name).cast(pa.string()) for name in ("run_id", "trial_id", "block", "position")
    )
    wanted = pc.binary_join_element_wise(
        run, pc.utf8_lpad(block, 3, padding="0"), pc.utf8_lpad(position, 4, padding="0"), "-"
    )
    wrong = pc.fill_null(pc.not_equal(own, wanted), True).to_numpy(zero_copy_only=False)
    yield Offence("trial_id", wrong, "run_id, block and position, joined")


def _outcomes(rows: Rows) -> Iterator[Offence]:
    timed, well = _timed(rows), rows.text("outcome").one_of("ok")
    yield Offence("error_kind", rows.valid("error_kind") == well, "a kind where a trial failed, and only there")
    for name in ("steps", "samples", "wall_ns", "samples_per_s"):
        yield Offence(name, rows.valid(name) != timed, "a value where a window was timed")
    yield Offence("fact", rows.valid("fact") != (well & ~timed), "a value where a check ended well")


def _samples(rows: Rows) -> Iterator[Offence]:
    samples, batch, world = (
        np.nan_to_num(rows.number(name), nan=1.0) for name in ("samples", "batch_size", "world_size")
    )
    most, script = rows.number("steps") * batch * world, rows.text("workload").one_of(SCRIPT)
    wrong = _timed(rows) & ~((samples == most) | (script & (samples < most)))
    yield Offence("samples", wrong, "steps × batch_size × world_size; no more, of a script")


def _rate(rows: Rows) -> Iterator[Offence]:
    rate, samples = rows.number("samples_per_s"), rows.number("samples")
    meant = rate * rows.number("wall_ns") / 1e9
    wrong = _timed(rows) & ~(np.abs(meant - samples) <= RATE_WITHIN * samples)
    yield Offence("samples_per_s", wrong, "samples ÷ wall_ns")


def _phases(rows: Rows) -> Iterator[Offence]:
    wall = rows.number("wall_ns")
    total = np.sum([np.nan_to_num(rows.number(f"host_{phase}_ns")) for phase in PHASES], axis=0)
    closes = (total <= wall + OVER_NS) & (total >= wall - OPEN_SHARE * wall - OPEN_NS)
    expected = f"wall_ns, or less by {100 * OPEN_SHARE:g} % and {OPEN_NS / 1e6:g} ms at most"
    yield Offence("host_*_ns", _timed(rows) & ~closes, expected, lambda row: f"{total[row]:.12g}")


def _on_a_cpu(rows: Rows) -> Iterator[Offence]:
    cpu = rows.text("device").one_of("cpu")
    for name in ("host_h2d_ns", *(f"device_{span}_ns" for span in DEVICE_SPANS)):
        yield Offence(name, cpu & rows.valid(name), "nothing, on a CPU")


def _steady(rows: Rows) -> Iterator[Offence]:
    half = rows.number("half_ratio")
    wrong = rows.valid("steady") & (rows.number("steady") != ((half > STEADY) & (half < 1 / STEADY)))
    yield Offence("steady", wrong, f"whether half_ratio lies within {STEADY:g} and its inverse")


def _whole(rows: Rows) -> Iterator[Offence]:
    parts = np.sum([np.nan_to_num(rows.number(name)) for name in _PARTS], axis=0)
    wrong = _timed(rows) & ~(parts <= rows.number("trial_wall_ns") * (1 + RATE_WITHIN))
    yield Offence("trial_wall_ns", wrong, f"at least {' + '.join(_PARTS)}")


def _cold(rows: Rows) -> Iterator[Offence]:
    """Find cold trials that did not read their samples, or whose unread samples lay in memory."""
    count = rows.number("n_samples")
    needed = needed_bytes(rows.number("stored_bytes"), rows.number("samples"), count)
    cold = _timed(rows) & rows.text("page_cache").one_of("cold") & (rows.run.protocol_version >= COLD_SINCE)
    wrong = cold & ~(rows.number("read_bytes") >= READ_LEAST * needed)
    yield Offence("read_bytes", wrong, f"{READ_LEAST:.0%} of stored_bytes × samples ÷ n_samples, or more")
    steps, batch = rows.number("warmup_steps") + rows.number("steps"), rows.number("batch_size")
    workers, ahead = (np.nan_to_num(rows.number(name)) for name in ("num_workers", "prefetch_factor"))
    consumed = consumed_samples(steps, batch, workers, ahead)
    with np.errstate(divide="ignore", invalid="ignore"):
        unread = unread_in_memory(rows.number("cached_after_pct"), consumed, count)
    asked = cold & rows.text("access").one_of("random") & ~(np.nan_to_num(rows.number("memory_limit_mib")) > 0)
    wrong = asked & ~((unread <= UNREAD_MOST) & (consumed < count))
    expected = f"{UNREAD_MOST:.0%} of the samples in memory that were not read, at most"
    yield Offence("cached_after_pct", wrong, expected, lambda row: f"{100 * unread[row]:.0f} %")


def _full(rows: Rows) -> Iterator[Offence]:
    """Find trials whose memory was to be full, and had no limit or room for all they read."""
    full = _timed(rows) & rows.text("page_cache").one_of("full")
    for name in ("memory_limit_mib", "read_bytes"):
        yield Offence(name, full & ~(rows.number(name) > 0), "more than 0")
    yield Offence("cached_after_pct", full & ~(rows.number("cached_after_pct") < 100), "less than 100")


def _worked(rows: Rows) -> Iterator[Offence]:
    """Batches of a window were prepared since the loader was started, by so many workers, or by the trial itself.

    Those of a stretch of a script may have been prepared in the ones before.
    """
    stages = (*WORKER_STAGES, "getitem")
    stamped = np.sum([np.nan_to_num(rows.number(f"worker_{stage}_ns")) for stage in stages], axis=0)
    since = np.sum([np.nan_to_num(rows.number(name)) for name in _PARTS], axis=0)
    script = rows.text("workload").one_of(SCRIPT)
    since = np.where(script, np.cumsum(np.where(script, since, 0.0)), since)
    room = np.maximum(np.nan_to_num(rows.number("num_workers")), 1) * since
    wrong = _timed(rows) & ~(stamped <= room + OVER_NS)
    yield Offence(
        "worker_*_ns", wrong, f"at most num_workers × ({' + '.join(_PARTS)})", lambda row: f"{stamped[row]:.12g}"
    )


def _cells(rows: Rows) -> Iterator[Offence]:
    """Find rows whose axes are not those of their cell, and cells whose id or axes are wrong."""
    ids, device = rows.text("cell_id"), rows.text("device")
    keys = ids.codes * (len(device.words) + 1) + device.codes
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    like: Codes = first[inverse.reshape(-1)]
    there = [axis for axis in AXES if rows.holds(axis.name)]
    for axis in there:
        values = rows.text(axis.name).codes if axis.type is str else rows.number(axis.name)
        alike = (values == values[like]) | (np.isnan(values) & np.isnan(values[like]))
        yield Offence(axis.name, ~alike, "the value of the first row of its cell")
    for row in first.tolist():
        cell = tuple((axis.name, value) for axis in there if (value := rows.axis(axis, row)) is not None)
        if problem := _cell_problem(cell, device.text(row) or "", ids.text(row) or ""):
            column, got, expected = problem
            yield Offence(column, np.arange(len(rows)) == row, expected, {row: got}.__getitem__)


@lru_cache(maxsize=1 << 16)
def _cell_problem(cell: tuple[tuple[str, Value], ...], device: str, own_id: str) -> tuple[str, str, str] | None:
    """Say what is wrong with a cell, by the axes that it sets: the column, what it holds, what was expected."""
    axes = dict(cell)
    for name, value in cell:
        try:
            BY_NAME[name].checked(value, name)
        except InputError as error:
            return name, quote(value), str(error).rpartition("; expected ")[2]
    _, idle = applicable({axis.name: axis.default for axis in AXES} | axes, device)
    for name, value in cell:
        if name in idle and value != BY_NAME[name].default:
            return name, quote(value), f"nothing: {idle[name]}"
    wanted = cell_id(axes)
    return None if wanted == own_id else ("cell_id", quote(own_id), f"{wanted} by its axes")


IDENTITIES = (
    RowRule("of_run", "Every row names the manifest's run, machine, device and protocol version.", _of_run),
    RowRule("trial_id", "A trial's id is computed anew from its run, block and position.", _trial_ids),
    RowRule(
        "cell",
        "A cell's id is computed anew from its axes, all its rows have the same ones, and every axis has a value that "
        "it can have, away from its default only where it applies.",
        _cells,
    ),
    RowRule(
        "outcome",
        "A trial that ended well timed a window (a check: saw a fact) and has no error; one that failed has an error "
        "and no window.",
        _outcomes,
    ),
    RowRule(
        "samples",
        "Samples are steps × batch size × replicas; of a script, whose batches may not be full, no more.",
        _samples,
    ),
    RowRule("rate", "Throughput × wall clock is the number of samples, to one part in a million.", _rate),
    RowRule(
        "phases",
        "The host's phases sum to no more than the window's wall clock and to at least "
        f"{100 * (1 - OPEN_SHARE):g} % of it minus {OPEN_NS / 1e6:g} ms; the rest lies between stamps.",
        _phases,
    ),
    RowRule("device", "Where a trial ran on a CPU nothing was copied to a device and no device was timed.", _on_a_cpu),
    RowRule("steady", "Whether a window was steady is computed anew from the ratio of its halves.", _steady),
    RowRule(
        "cold",
        "A trial that is called cold read from storage, in its window, at least "
        f"{READ_LEAST:.0%} of the bytes that its samples take there; in random order, and without a memory limit, at "
        f"most {UNREAD_MOST:.0%} of the samples that it did not read lay in memory afterwards (protocol {COLD_SINCE} "
        "and later).",
        _cold,
    ),
    RowRule(
        "full",
        "A trial whose memory was full of its set had a memory limit, read from storage in its window, and had not all "
        "of the set in memory afterwards.",
        _full,
    ),
    RowRule(
        "worked",
        "The stages of a window’s batches take no longer than its workers had: each from the loader’s start to the "
        "window’s end; without workers the trial itself. Of a script all stretches until then count.",
        _worked,
    ),
    RowRule("whole", "Start-up, compiling, warm-up and window together take no longer than the whole trial.", _whole),
)
