"""A result file that is as large as wanted: the trials of a made-up run again and again, with host times of their own.

It keeps every rule that a file of a sweep keeps, so it is read, validated and compared to its end; and it is written as
a sweep writes one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.bench.generated import BESIDE_NS, SPREAD, changed
from harness.migration import MANIFEST_KEY
from harness.store import GROUP_ROWS, encoding


def write(small: Path, rows: int, target: Path) -> None:
    """Write a large file of trials.

    Args:
        small: the ``trials.parquet`` of a run of ``generated``.
        rows: how many the large one has.
        target: gets it.
    """
    table = pq.read_table(small)
    blocks = int(np.max(table["block"].to_numpy())) + 1
    manifest = json.loads(table.schema.metadata[MANIFEST_KEY])
    manifest |= {"outcomes": {"ok": rows}, "blocks": -(-rows // (len(table) // blocks))}
    table = table.replace_schema_metadata({MANIFEST_KEY: json.dumps(manifest).encode()})
    draw = np.random.default_rng(5)
    with pq.ParquetWriter(target, table.schema, **encoding("trials")) as writer:
        for begin in range(0, rows, GROUP_ROWS):
            writer.write_table(_part(table, blocks, np.arange(begin, min(begin + GROUP_ROWS, rows)), draw))


def _part(table: pa.Table, blocks: int, places: npt.NDArray[np.int64], draw: np.random.Generator) -> pa.Table:
    part = table.take(pa.array(places % len(table)))
    block = part["block"].to_numpy() + blocks * (places // len(table))
    run, position = part["run_id"][0].as_py(), part["position"].to_numpy()
    columns: dict[str, Any] = {
        "block": block,
        "trial_id": [f"{run}-{a:03d}-{b:04d}" for a, b in zip(block.tolist(), position.tolist(), strict=True)],
    }
    weather, wall = np.exp(draw.normal(0, SPREAD, len(places))), np.zeros(len(places), dtype=np.int64)
    for name in [name for name in table.column_names if name.startswith("host_") and name != "host_drain_ns"]:
        if part[name].null_count < len(part):
            values = np.ma.masked_invalid(part[name].to_numpy().astype(np.float64) * weather)
            columns[name] = np.ma.MaskedArray(values.filled(0).astype(np.int64), np.ma.getmaskarray(values))
            wall += columns[name].filled(0)
    columns |= {"wall_ns": wall, "samples_per_s": part["samples"].to_numpy() / (wall / 1e9)}
    columns["trial_wall_ns"] = wall + BESIDE_NS
    return changed(part, columns)
