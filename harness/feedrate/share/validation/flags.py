"""What looks odd in a file that keeps to every rule: flags, which ask somebody to look and refuse nothing.

A run is held against runs of machines with the same GPU (on a CPU: the same processor and as many cores): a cell that
is many times as fast or as slow as theirs may be a new library, a broken cooler, or made up. A flag says what was seen
and never that it is wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feedrate.schema.columns import DEVICE_SPANS, TABLES
from feedrate.schema.errors import InputError
from feedrate.share.validation.findings import Finding, Rule, shown
from feedrate.share.validation.parquet import Opened
from feedrate.store import migration
from feedrate.store.manifest import RunManifest

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
_READ = [*_CELL, "outcome", "samples_per_s"]

UNLIKE_OTHERS = Rule(
    "unlike_others",
    f"A cell is at least {APART:g} times as fast, or at most 1/{APART:g} as fast, as on a machine with the same GPU "
    "(or the same processor and cores).",
)
MORE_THAN_CORES = Rule("more_than_cores", "Processes used more CPU than the machine has cores.")
MORE_THAN_WINDOW = Rule("more_than_window", "The GPU was in one span for longer than the window lasted.")
NO_SPREAD = Rule("no_spread", "All trials of a cell took the same time, to the nanosecond.")
RULES = (UNLIKE_OTHERS, MORE_THAN_CORES, MORE_THAN_WINDOW, NO_SPREAD)


class _Cell(NamedTuple):
    """What must agree before two cells are compared."""

    cell_id: str
    data_hash: str | None
    workload_version: int | None
    protocol_version: int


def flags(file: Opened, results: Path) -> Iterator[Finding]:
    """List what looks odd."""
    there = set(file.file.schema_arrow.names)
    spans = [f"device_{span}_ns" for span in DEVICE_SPANS]
    busy = ["main_cpu_pct", "workers_cpu_pct", "foreign_cpu_pct"]
    table = file.file.read([name for name in (*_READ, "wall_ns", *spans, *busy) if name in there], use_threads=False)
    cores = file.manifest.machine.cores_logical
    used = _sum(table, [name for name in busy if name in there])
    if (over := pc.sum(pc.greater(used, OVER_CORES_PCT * cores)).as_py() or 0) > 0:
        usual = f"at most {OVER_CORES_PCT:g} % of the cores"
        yield _flag(MORE_THAN_CORES, file, f"{over} trials that used more CPU than {cores} cores have", usual)
    for name in [name for name in spans if name in there]:
        longer = pc.greater(pc.cast(table[name], pa.float64()), pc.multiply(table["wall_ns"], OVER_WINDOW))
        if (over := pc.sum(longer).as_py() or 0) > 0:
            yield _flag(
                MORE_THAN_WINDOW,
                file,
                f"{over} trials in column {name}",
                f"at most {100 * OVER_WINDOW:g} % of the window",
            )
    yield from _no_spread(table, file)
    yield from _unlike(table, file, results)


def _flag(rule: Rule, file: Opened, got: str, usual: str) -> Finding:
    return Finding(rule.name, "flag", file.where, got, usual)


def _sum(table: pa.Table, names: list[str]) -> Any:
    """Sum columns of each row; what is null counts nothing."""
    total: Any = pa.array([0.0] * len(table))
    for name in names:
        total = pc.add(total, pc.fill_null(table[name], 0.0))
    return total


def _no_spread(table: pa.Table, file: Opened) -> Iterator[Finding]:
    timed = table.filter(pc.is_valid(table["wall_ns"])).select(["cell_id", "wall_ns"])
    by_cell = timed.set_column(0, "cell_id", timed["cell_id"].cast(pa.string())).group_by("cell_id")
    told = by_cell.aggregate([("wall_ns", "min"), ("wall_ns", "max"), ("wall_ns", "count")])
    same = pc.and_(
        pc.equal(told["wall_ns_min"], told["wall_ns_max"]), pc.greater_equal(told["wall_ns_count"], FEWEST_ALIKE)
    )
    if cells := told.filter(same)["cell_id"].to_pylist():
        yield _flag(NO_SPREAD, file, f"{len(cells)} cells, {cells[0]} among them", "times that differ between trials")


def _unlike(table: pa.Table, file: Opened, results: Path) -> Iterator[Finding]:
    mine = _rates(table)
    for other, theirs in _alike(file.manifest, results):
        ratios = {cell: mine[cell] / theirs[cell] for cell in mine.keys() & theirs.keys()}
        odd = sorted((max(ratio, 1 / ratio), cell.cell_id, ratio) for cell, ratio in ratios.items() if _apart(ratio))
        if odd:
            _, worst, ratio = odd[-1]
            got = f"{len(odd)} of {len(ratios)} cells far off; {worst} is {ratio:.3g} times as fast"
            usual = f"{1 / APART:g} to {APART:g} times as fast as in run {shown(other.run_id)} of the same make"
            yield _flag(UNLIKE_OTHERS, file, got, usual)


def _apart(ratio: float) -> bool:
    return not 1 / APART < ratio < APART


def _rates(table: pa.Table) -> dict[_Cell, float]:
    """Geometric mean of each cell's throughput over the trials that ended well."""
    good = table.filter(pc.and_kleene(pc.equal(_plain(table["outcome"]), "ok"), pc.greater(table["samples_per_s"], 0)))
    # A file of schema version 1 may lack columns that came later.
    columns: dict[str, Any] = {
        column.name: _plain(good[column.name])
        if column.name in good.column_names
        else pa.nulls(len(good), pa.string() if column.dtype == "string" else pa.int64())
        for column in TABLES["trials"]
        if column.name in _CELL
    }
    told = pa.table(columns | {"log": pc.ln(good["samples_per_s"])}).group_by(_CELL).aggregate([("log", "mean")])
    means = pc.exp(told["log_mean"]).to_pylist()
    return {_Cell(*key): mean for *key, mean in zip(*(told[name].to_pylist() for name in _CELL), means, strict=True)}


def _plain(column: Any) -> Any:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _alike(run: RunManifest, results: Path) -> Iterator[tuple[RunManifest, dict[_Cell, float]]]:
    """The newest runs of machines of the same make, each with the throughput of its cells.

    This run is left out, and so is whatever was withdrawn.
    """
    found = 0
    name = json.dumps(run.machine.gpu_name if run.device == "cuda" else run.machine.cpu_model, ensure_ascii=False)
    for path in sorted(results.glob("*/*/run.json"), key=lambda path: path.parent.name, reverse=True):
        if os.path.lexists(path.parent.with_name(f"{path.parent.name}.withdrawn.json")):
            continue
        try:
            if name.encode() not in (text := path.read_bytes()):  # most of ten thousand need not be understood
                continue
            other = migration.manifest(text, path)
            if other.run_id == run.run_id or _make(other) != _make(run):
                continue
            file = pq.ParquetFile(path.with_name("trials.parquet"))
            table = file.read([name for name in _READ if name in file.schema_arrow.names], use_threads=False)
            rates = _rates(table)
        except (InputError, OSError, ValueError, KeyError):
            continue  # what cannot be read is nobody's measure
        yield other, rates
        found += 1
        if found == MOST_ALIKE:
            return


def _make(run: RunManifest) -> tuple[object, ...]:
    """What two machines share whose results should be alike."""
    machine = run.machine
    if run.device == "cuda":
        return run.device, machine.gpu_name, machine.gpu_count
    return run.device, machine.cpu_model, machine.cores_logical, machine.cpu_quota_cores
