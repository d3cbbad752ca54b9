"""What looks odd in a file that keeps to every rule: flags, which ask somebody to look and refuse nothing.

A run is held against runs of machines with the same GPU (on a CPU: the same processor and as many cores): a cell that
is many times as fast or as slow as theirs may be a new library, a broken cooler, or made up. A flag says what was seen
and never that it is wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feedrate.schema.columns import DEVICE_SPANS, TABLES
from feedrate.schema.errors import InputError
from feedrate.share.validation.findings import Finding, Rule, quote
from feedrate.share.validation.parquet import Opened
from feedrate.store import migration
from feedrate.store.manifest import RunManifest
from feedrate.store.runs import CHECKED

APART = 4.0
"""A cell's throughput is odd when it is so many times that of a machine of the same make, or less than its inverse."""
MOST_ALIKE = 20
"""Runs that a run is held against: the newest."""
OVER_CORES_PCT = 110.0
"""What all processes may use of the cores together; the clocks that tell it are read one after the other."""
OVER_WINDOW = 1.05
FEWEST_ALIKE = 5
"""Trials of a cell from which on it is odd that all took the same nanoseconds."""
_CELL = ["cell_id", "data_hash", "workload_version", "protocol_version"]
"""What must agree before two cells are compared."""
_READ = [*_CELL, "outcome", "samples_per_s", "wall_ns"]
_BUSY = ["main_cpu_pct", "workers_cpu_pct", "foreign_cpu_pct"]
_SPANS = [f"device_{span}_ns" for span in DEVICE_SPANS]
Rates = dict[tuple[Any, ...], float]
"""Cell to its throughput."""

UNLIKE_OTHERS = Rule(
    "unlike_others",
    f"A cell is at least {APART:g} times as fast, or at most 1/{APART:g} as fast, as on a machine with the same GPU "
    "(or the same processor and cores).",
)
MORE_THAN_CORES = Rule("more_than_cores", "Processes used more CPU than the machine has cores.")
MORE_THAN_WINDOW = Rule("more_than_window", "The GPU was in one span for longer than the window lasted.")
NO_SPREAD = Rule("no_spread", "All trials of a cell took the same time, to the nanosecond.")
RULES = (UNLIKE_OTHERS, MORE_THAN_CORES, MORE_THAN_WINDOW, NO_SPREAD)


def flags(file: Opened, results: Path) -> Iterator[Finding]:
    """List what looks odd."""
    table = _columns(file.file, [*_READ, *_SPANS, *_BUSY])
    for rule, got, usual in (
        *_over_cores(table, file.manifest.machine.cores_logical),
        *_over_window(table),
        *_no_spread(table),
        *_unlike_others(table, file.manifest, results),
    ):
        yield rule.finding(file.where, got, usual, "flag")


def _columns(file: pq.ParquetFile, names: list[str]) -> pa.Table:
    """Read columns, texts as texts; one that came after the file was written is null throughout."""
    there = set(file.schema_arrow.names)
    table = file.read([name for name in names if name in there], use_threads=False)
    schema = migration.arrow_schema(column for column in TABLES["trials"] if column.name in names)
    columns = [
        table[field.name].cast(field.type) if field.name in there else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _over_cores(table: pa.Table, cores: int) -> Iterator[tuple[Rule, str, str]]:
    used = sum(pc.fill_null(table[name], 0.0).to_numpy() for name in _BUSY)
    if over := int((used > OVER_CORES_PCT * cores).sum()):
        got = f"{over} trials that used more CPU than {cores} cores have"
        yield MORE_THAN_CORES, got, f"at most {OVER_CORES_PCT:g} % of the cores"


def _over_window(table: pa.Table) -> Iterator[tuple[Rule, str, str]]:
    for name in _SPANS:
        longer = pc.greater(pc.cast(table[name], pa.float64()), pc.multiply(table["wall_ns"], OVER_WINDOW))
        if over := pc.sum(longer).as_py():
            yield MORE_THAN_WINDOW, f"{over} trials in column {name}", f"at most {100 * OVER_WINDOW:g} % of the window"


def _no_spread(table: pa.Table) -> Iterator[tuple[Rule, str, str]]:
    walls = (
        table.filter(pc.is_valid(table["wall_ns"]))
        .group_by("cell_id")
        .aggregate([("wall_ns", "min"), ("wall_ns", "max"), ("wall_ns", "count")])
    )
    many = pc.greater_equal(walls["wall_ns_count"], FEWEST_ALIKE)
    same = pc.and_(pc.equal(walls["wall_ns_min"], walls["wall_ns_max"]), many)
    if cells := walls.filter(same)["cell_id"].to_pylist():
        yield NO_SPREAD, f"{len(cells)} cells, {cells[0]} among them", "times that differ between trials"


def _unlike_others(table: pa.Table, run: RunManifest, results: Path) -> Iterator[tuple[Rule, str, str]]:
    own = _rates(table)
    for other, theirs in islice(_alike(run, results), MOST_ALIKE):
        ratios = {cell: own[cell] / theirs[cell] for cell in own.keys() & theirs.keys()}
        apart = [(max(ratio, 1 / ratio), cell[0], ratio) for cell, ratio in ratios.items()]
        if odd := [each for each in apart if each[0] >= APART]:
            _, worst, ratio = max(odd)
            got = f"{len(odd)} of {len(ratios)} cells far off; {worst} is {ratio:.3g} times as fast"
            usual = f"{1 / APART:g} to {APART:g} times as fast as in run {quote(other.run_id)} of the same make"
            yield UNLIKE_OTHERS, got, usual


def _rates(table: pa.Table) -> Rates:
    """Geometric mean of each cell's throughput over the trials that ended well."""
    good = table.filter(pc.and_kleene(pc.equal(table["outcome"], "ok"), pc.greater(table["samples_per_s"], 0)))
    logs = good.append_column("log", pc.ln(good["samples_per_s"])).group_by(_CELL).aggregate([("log", "mean")])
    cells = zip(*(logs[name].to_pylist() for name in _CELL), strict=True)
    return dict(zip(cells, pc.exp(logs["log_mean"]).to_pylist(), strict=True))


def _alike(run: RunManifest, results: Path) -> Iterator[tuple[RunManifest, Rates]]:
    """Other runs of the same make that count and can be read, the newest first, with the throughput of their cells."""
    name = json.dumps(run.machine.gpu_name if run.device == "cuda" else run.machine.cpu_model, ensure_ascii=False)
    for path in sorted(results.glob("*/*/run.json"), key=lambda path: path.parent.name, reverse=True):
        if os.path.lexists(path.parent.with_name(f"{path.parent.name}.withdrawn.json")):
            continue
        try:
            if name.encode() not in (text := path.read_bytes()):  # most of ten thousand need not be parsed
                continue
            other = migration.manifest(text, path)
            if other.run_id == run.run_id or _make(other) != _make(run):
                continue
            rates = _rates(_columns(pq.ParquetFile(path.with_name("trials.parquet"), **CHECKED), _READ))
        except (InputError, OSError, ValueError, KeyError):
            continue
        yield other, rates


def _make(run: RunManifest) -> tuple[object, ...]:
    """What two machines share whose results should be alike."""
    machine = run.machine
    if run.device == "cuda":
        return run.device, machine.gpu_name, machine.gpu_count
    return run.device, machine.cpu_model, machine.cores_logical, machine.cpu_quota_cores
