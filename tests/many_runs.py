"""Very many results, to see what they cost: runs of many machines, rows of a compact data set, a file of many trials.

They are those of a few runs that ``fake_run`` makes up, again and again under other names.
"""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fake_run
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feedrate.pages.compact import estimated
from feedrate.store import compact
from feedrate.store.runs import CHECKED, GROUP_ROWS, encoding, folders
from feedrate.store.tables import MANIFEST_KEY

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RUNS_A_MACHINE = 10


def run_id(number: int) -> str:
    """Name a run: each begins an hour after the one before."""
    return f"{BEGAN + number * timedelta(hours=1):%Y%m%dT%H%M%SZ}-{number % 2**16:04x}"


def write(results: Path, machines: int, **what: Any) -> None:
    """Write one run for each of some machines, every third of which has a GPU."""
    for number in range(machines):
        device = "cuda" if number % 3 == 2 else "cpu"
        fake_run.write(results, fake_run.Fake(run_id(number), device, fails="none", cores=2 + number, **what))


def write_compact(results: Path, count: int) -> None:
    """Make the compact data set of very many runs, ``RUNS_A_MACHINE`` a machine, without the runs themselves.

    An empty file in place of each run's folder says that it is there.
    """
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), 1)
        few = estimated(folders(Path(folder)))
    names = [(f"made-up-{number // RUNS_A_MACHINE:06d}", run_id(-1 - number)) for number in range(count)]
    table = few.take(np.tile(np.arange(len(few)), count))
    for column, values in zip(("machine_id", "run_id"), zip(*names, strict=True), strict=True):
        repeated = pa.array(np.repeat(values, len(few)).tolist())
        table = table.set_column(table.column_names.index(column), column, repeated)
    compact.put(table, results / compact.FOLDER)
    for machine_id, name in names:
        (results / machine_id).mkdir(exist_ok=True)
        (results / machine_id / name).touch()


def write_repeated(small: Path, rows: int, target: Path) -> None:
    """Write a large file of trials: those of a small one again and again, a block behind the other."""
    table = pq.read_table(small, **CHECKED)
    blocks, places = int(table["block"].to_numpy().max()) + 1, np.arange(rows)
    manifest = json.loads(table.schema.metadata[MANIFEST_KEY])
    manifest |= {"outcomes": {"ok": rows}, "blocks": -(-rows // (len(table) // blocks))}
    many = table.take(places % len(table))
    block = many["block"].to_numpy() + blocks * (places // len(table))
    numbers = zip(many["run_id"].to_pylist(), block, many["position"].to_pylist(), strict=True)
    ids = [f"{name}-{block:03d}-{position:04d}" for name, block, position in numbers]
    began = [table["started_at"][0].as_py()] * rows  # none before another
    for name, values in {"block": block, "trial_id": ids, "started_at": began}.items():
        field = many.schema.field(name)
        many = many.set_column(many.column_names.index(name), field, pa.array(values, field.type))
    many = many.replace_schema_metadata({MANIFEST_KEY: json.dumps(manifest).encode()})
    pq.write_table(many, target, row_group_size=GROUP_ROWS, **encoding("trials"))
